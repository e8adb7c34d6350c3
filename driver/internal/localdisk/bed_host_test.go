//go:build host

package localdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// poolOn makes a pool on a filesystem of its own, of a sparse file; it goes with the test, and whatever is still attached
// to a file on it fails the test.
func poolOn(t *testing.T, fsType string, gib int64) string {
	t.Helper()
	dir := t.TempDir()
	image, point := filepath.Join(dir, "pool.img"), filepath.Join(dir, "pool")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, gib<<30); err != nil {
		t.Fatal(err)
	}
	if err := format(t.Context(), fsType, image); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "-o", "loop,discard", image, point)
	t.Cleanup(func() {
		if left := leaks(t, point); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if out, err := exec.Command("umount", point).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return point
}

func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// leaks returns the loop devices of files under a path, and the mounts there, that remain. A loop device is released late if
// another process has it open just then, and every `mount -o loop` on this machine looks into all of them.
func leaks(t *testing.T, under string) []string {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	left := leaksNow(t, under)
	for range 1200 { // a minute: the kernel lets a loop device go when all that was written through it has reached the disk
		if len(left) == 0 {
			break
		}
		<-tick.C
		left = leaksNow(t, under)
	}
	return left
}

func leaksNow(t *testing.T, under string) []string {
	t.Helper()
	var left []string
	if _, err := loopsOver(func(backing string) bool {
		if strings.HasPrefix(backing, under+"/") {
			left = append(left, backing)
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	all, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.point, under+"/") {
			left = append(left, m.point)
		}
	}
	return left
}

// user uses a volume as the kubelet does for a pod.
type user struct {
	t       *testing.T
	c       client
	dir     string
	handle  string
	ability *csi.VolumeCapability
}

func (u user) staging() string { return filepath.Join(u.dir, "staging-"+u.handle) }
func (u user) target() string  { return filepath.Join(u.dir, "target-"+u.handle) }

func (u user) stage() error {
	_, err := u.c.NodeStageVolume(u.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: u.handle, StagingTargetPath: u.staging(), VolumeCapability: u.ability,
	})
	return err
}

func (u user) publish() error {
	_, err := u.c.NodePublishVolume(u.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: u.handle, StagingTargetPath: u.staging(), TargetPath: u.target(), VolumeCapability: u.ability,
	})
	return err
}

func (u user) unpublish() error {
	_, err := u.c.NodeUnpublishVolume(u.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: u.handle, TargetPath: u.target()})
	return err
}

func (u user) unstage() error {
	_, err := u.c.NodeUnstageVolume(u.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: u.handle, StagingTargetPath: u.staging()})
	return err
}

func (u user) expand(mib int64) error {
	_, err := u.c.ControllerExpandVolume(u.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: u.handle, CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
	})
	return err
}

func (u user) expandNode(mib int64) error {
	_, err := u.c.NodeExpandVolume(u.t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: u.handle, VolumePath: u.target(), CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
	})
	return err
}

func (u user) file() string {
	if u.ability.GetBlock() != nil {
		return u.target()
	}
	return filepath.Join(u.target(), "data")
}

// write leaves a text where read finds it, and on the disk.
func (u user) write(text string) {
	u.t.Helper()
	flags := os.O_WRONLY
	if u.ability.GetBlock() == nil {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(u.file(), flags, 0o600)
	if err != nil {
		u.t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(text), 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		u.t.Fatal(err)
	}
}

func (u user) read(length int) string { return readAt(u.t, u.file(), length, 0) }

// use stages and publishes a volume for as long as work takes.
func (u user) use(work func()) {
	u.t.Helper()
	for _, step := range []func() error{u.stage, u.publish} {
		if err := step(); err != nil {
			u.t.Fatal(err)
		}
	}
	work()
	for _, step := range []func() error{u.unpublish, u.unstage} {
		if err := step(); err != nil {
			u.t.Fatal(err)
		}
	}
}

// abilities returns the modes a volume can have, with a filesystem named or not.
func abilities() map[string]*csi.VolumeCapability {
	return map[string]*csi.VolumeCapability{"Block": block(), "ext4": mounted("ext4"), "xfs": mounted("xfs")}
}

func wanting(name string, mib int64, ability *csi.VolumeCapability) *csi.CreateVolumeRequest {
	r := asking(name, mib)
	r.VolumeCapabilities = []*csi.VolumeCapability{ability}
	return r
}

// sizeSeen returns how large a volume is to who uses it.
func (u user) sizeSeen() int64 {
	u.t.Helper()
	if u.ability.GetBlock() != nil {
		f, err := os.Open(u.target())
		if err != nil {
			u.t.Fatal(err)
		}
		defer f.Close()
		end, err := f.Seek(0, 2)
		if err != nil {
			u.t.Fatal(err)
		}
		return end
	}
	r, err := u.c.NodeGetVolumeStats(u.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: u.handle, VolumePath: u.target()})
	if err != nil || len(r.GetUsage()) != 2 {
		u.t.Fatalf("stats: %v, %v", r, err)
	}
	return r.GetUsage()[0].GetTotal()
}

// growsInUse returns what growing in use is answered with on this machine: the kernel wants a capability for ext4.
func (u user) growsInUse() codes.Code {
	u.t.Helper()
	can, err := capable(unix.CAP_SYS_RESOURCE)
	if err != nil {
		u.t.Fatal(err)
	}
	if u.ability.GetMount().GetFsType() == "ext4" && !can {
		return codes.FailedPrecondition
	}
	return codes.OK
}

func name(t *testing.T, n int) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), n)
}
