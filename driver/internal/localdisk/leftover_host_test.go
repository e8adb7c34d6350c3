//go:build host

package localdisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// forgotten is a volume that a kubelet has published, at the paths of the kubelet, and forgotten.
type forgotten struct {
	*testing.T
	driver  *Driver // nil if it is another process
	c       client
	kubelet string
	handle  string
	ability *csi.VolumeCapability
	target  string
	staging string
}

// asKubelet has the paths of a kubelet with two pods, one of which is to have the volume.
func asKubelet(t *testing.T, ability *csi.VolumeCapability) forgotten {
	t.Helper()
	f := forgotten{T: t, kubelet: t.TempDir(), ability: ability}
	f.staging, f.target = f.kubelet+stagingPath(Name), f.kubelet+podPath
	if ability.GetBlock() != nil {
		f.staging, f.target = f.kubelet+"/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1", f.kubelet+publishPath
	}
	for _, pod := range []string{"another", testPod} {
		if err := os.MkdirAll(filepath.Join(f.kubelet, "pods", pod), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f forgotten) publish(c client) error {
	if _, err := c.NodeStageVolume(f.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: f.handle, StagingTargetPath: f.staging, VolumeCapability: f.ability,
	}); err != nil {
		return err
	}
	_, err := c.NodePublishVolume(f.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: f.handle, StagingTargetPath: f.staging, TargetPath: f.target, VolumeCapability: f.ability,
	})
	return err
}

func forget(t *testing.T, ability *csi.VolumeCapability) forgotten {
	t.Helper()
	f := asKubelet(t, ability)
	f.driver, f.c = open(t, testSettings(poolOn(t, "xfs", 2)))
	f.handle = f.c.mustCreate(t, wanting("v", 310, ability)).GetVolumeId()
	if err := f.publish(f.c); err != nil {
		t.Fatal(err)
	}
	return f
}

// device returns the path of the volume's loop device.
func (f forgotten) device() string {
	f.Helper()
	v, err := f.driver.pool.findVolume(f.handle)
	if err != nil {
		f.Fatal(err)
	}
	dev, err := f.driver.pool.attached(v.id)
	if err != nil || dev == nil {
		f.Fatalf("device %v, %v", dev, err)
	}
	defer dev.close()
	return dev.path()
}

func (f forgotten) podGoes() {
	f.Helper()
	if err := os.RemoveAll(filepath.Join(f.kubelet, "pods", testPod)); err != nil {
		f.Fatal(err)
	}
}

// refused fails the test unless the volume is not deleted, for this reason, and is all there.
func (f forgotten) refused(says string) {
	f.Helper()
	usual := f.driver.pool.patience
	f.driver.pool.patience = 100 * time.Millisecond
	defer func() { f.driver.pool.patience = usual }()
	_, err := f.c.DeleteVolume(f.Context(), &csi.DeleteVolumeRequest{VolumeId: f.handle})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), says) {
		f.Errorf("got %v, want a refusal that says %q", err, says)
	}
	if _, err := os.Stat(imageOf(f.T, f.driver, f.handle)); err != nil {
		f.Errorf("the volume's data: %v", err)
	}
}

// deleted fails the test unless the volume goes, and with it all that was of it under the kubelet's directory.
func (f forgotten) deleted() {
	f.Helper()
	remove(f.T, f.c, f.handle)
	if left := leaks(f.T, f.kubelet); len(left) > 0 {
		f.Errorf("left behind: %v", left)
	}
	if _, err := os.Lstat(f.target); !os.IsNotExist(err) {
		f.Errorf("the pod's path: %v", err)
	}
}

// lock does what the kubelet does with the device of a pod: a mount of its own, and a loop device on top.
func (f forgotten) lock() {
	f.Helper()
	point := f.kubelet + devicePath
	if err := makeTarget(point, modeBlock); err != nil {
		f.Fatal(err)
	}
	if err := bind(f.target, point, false); err != nil {
		f.Fatal(err)
	}
	command(f.T, "losetup", "-f", point)
}

// TestForgottenDevice: a device whose pod is gone goes with its volume; not before, and not while anything has it open.
func TestForgottenDevice(t *testing.T) {
	f := forget(t, block())
	f.lock()
	f.refused("pod " + testPod + " is still on the node")
	if device, err := mountAt(f.target); err != nil || device == nil {
		t.Errorf("the mount of a pod that is there: %v, %v", device, err)
	}
	guest, err := os.OpenFile(f.device(), os.O_RDWR, 0) // as in a container, which has a node of its own for the device
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	f.podGoes()
	f.refused("fuser -v /dev/loop")
	f.refused("fuser -v /dev/loop") // also when no mount is left that would tell
	if _, err := guest.WriteAt([]byte("alive"), 0); err != nil {
		t.Errorf("the guest that is still there: %v", err)
	}
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	f.deleted()
}

// TestForgottenPath: also while the path itself is open, which keeps it mounted.
func TestForgottenPath(t *testing.T) {
	f := forget(t, block())
	guest, err := os.Open(f.target)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	f.podGoes()
	f.refused("fuser -v /dev/loop")
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	f.deleted()
}

// TestForgottenNowhere: where no pod is seen at all, none is known to be gone.
func TestForgottenNowhere(t *testing.T) {
	f := forget(t, block())
	f.podGoes()
	if err := os.Remove(filepath.Join(f.kubelet, "pods", "another")); err != nil {
		t.Fatal(err)
	}
	f.refused("cannot be told")
	if err := os.Mkdir(filepath.Join(f.kubelet, "pods", "another"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.deleted()
}

// TestForgottenStaging: a filesystem that is mounted for the node only goes with its volume, unless a container still has it.
func TestForgottenStaging(t *testing.T) {
	f := forget(t, mounted("ext4"))
	f.refused("is mounted at " + f.kubelet)
	container := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; read line")
	in, err := container.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := container.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := container.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has its mounts
		t.Fatal(err)
	}
	if err := unix.Unmount(f.target, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.target); err != nil {
		t.Fatal(err)
	}
	f.refused("/proc/[0-9]*/mountinfo")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = container.Wait() // `read` at the end of its input
	f.deleted()
}

// TestCrashForgotten ends the driver at every step of taking away what was forgotten, and continues.
func TestCrashForgotten(t *testing.T) {
	everyStep(t, func(t *testing.T) string { return poolOn(t, "xfs", 2) }, func(v *victim) {
		f := asKubelet(v.t, block())
		v.do("create", func() error {
			made, err := v.CreateVolume(f.Context(), asking("v", 64))
			f.handle = made.GetVolume().GetVolumeId()
			return err
		})
		v.do("publish", func() error { return f.publish(v.client) })
		f.lock()
		f.podGoes()
		v.do("delete", func() error {
			_, err := v.DeleteVolume(f.Context(), &csi.DeleteVolumeRequest{VolumeId: f.handle})
			return err
		})
		if left := leaks(v.t, f.kubelet); len(left) > 0 {
			v.t.Errorf("left behind: %v", left)
		}
		v.empty()
	})
}
