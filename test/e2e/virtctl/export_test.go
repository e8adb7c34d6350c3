//go:build e2e

package virtctl

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// hashed is the sha256 of what is read.
func hashed(t *testing.T, r io.Reader) (string, int64) {
	t.Helper()
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil)), n
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestExport: what was imported comes out as it went in: as raw bytes, compressed, and as a qcow2 image, from a file and from a
// device; sent to another cluster it is the same disk there. What is in use is not read and says so; an export whose time is over is gone.
func TestExport(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	v := fixture.NewVirtctl(t, b.Env)
	b.CreateVolume(fixture.Volume{Name: "file", Class: fixture.ClassImmediate, Size: "40Mi"})
	b.CreateVolume(fixture.Volume{Name: "device", Class: fixture.ClassDiskImmediate, Size: "64Mi", Block: true})
	for _, name := range []string{"file", "device"} {
		b.UntilPhase(name, cdiv1.Succeeded)
		dir := t.TempDir()
		raw, packed, qcow2 := filepath.Join(dir, "disk.img"), filepath.Join(dir, "disk.img.gz"), filepath.Join(dir, "disk.qcow2")
		out := v.Must("vmexport", "download", "out-"+name, "--pvc", name, "--format=raw", "--output", raw, "--keep-vme")
		fixture.HasTexts(t, out, fmt.Sprintf("VirtualMachineExport '%s/out-%s' created succesfully", b.Namespace, name), "Download finished succesfully") //nolint:misspell // as upstream spells it
		got, size := hashed(t, opened(t, raw))
		if want := fixture.DiskSum(fixture.DiskImage(24), size); size < 24*fixture.MiB || got != want {
			t.Errorf("%s: %d bytes come out as %s, not %s", name, size, got, want)
		}
		if name == "file" {
			exportHarmed(b, v, "out-file", "file", raw)
		}
		v.Must("vmexport", "download", "out-"+name, "--output", packed)
		z, err := gzip.NewReader(opened(t, packed))
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := hashed(t, z); again != got {
			t.Errorf("%s: compressed it is another disk", name)
		}
		v.Must("vmexport", "download", "out-"+name, "--format=qcow2", "--output", qcow2, "--delete-vme")
		if text, err := exec.Command("qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, qcow2).CombinedOutput(); err != nil {
			t.Errorf("%s: qemu-img compare: %v: %s", name, err, text)
		}
		if info, err := os.Stat(qcow2); err != nil || info.Size() > 15*fixture.MiB {
			t.Errorf("%s: 12 MiB of data are an image of %d bytes, %v", name, info.Size(), err)
		}
	}
	// to another cluster, which is this one
	v.Must("vmexport", "download", "across", "--pvc=file", "--to-kubeconfig", framework.Kubeconfig(t), "--to-namespace", b.Namespace,
		"--to-name=copy", "--to-storage-class="+fixture.ClassImmediate, "--to-uploadproxy-url="+proxyURL(b))
	b.UntilPhase("copy", cdiv1.Succeeded)
	there := filepath.Join(t.TempDir(), "copy.img")
	v.Must("vmexport", "download", "back", "--pvc=copy", "--format=raw", "--output", there)
	if got, size := hashed(t, opened(t, there)); got != fixture.DiskSum(fixture.DiskImage(24), size) {
		t.Errorf("the disk that was sent is another, of %d bytes", size)
	}
	exportWaits(b, v)
}

// exportWaits: a claim that a pod uses is not read, and neither is an export after its lifetime.
func exportWaits(b *fixture.Volumes, v *fixture.Virtctl) {
	b.T.Helper()
	pod := b.Start(framework.Pod{Name: "user", Claims: []string{"file"}, Script: "sleep 3600"})
	if out := v.Must("vmexport", "create", "busy", "--pvc", "file"); !strings.Contains(out, "created succesfully") { //nolint:misspell // as upstream spells it
		b.T.Errorf("create says %q", out)
	}
	b.Kubectl("wait", "vmexport/busy", "--for=jsonpath={.status.conditions[0].reason}=InUse", "--timeout=60s")
	if o := v.Run("vmexport", "download", "busy", "--output", filepath.Join(b.T.TempDir(), "x"), "--readiness-timeout=3s"); o.Code == 0 ||
		!strings.Contains(o.Err, "pod user uses PersistentVolumeClaim file") {
		b.T.Errorf("a download of what is in use: %d %s", o.Code, o.Err)
	}
	if err := b.Client.CoreV1().Pods(b.Namespace).Delete(b.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		b.T.Fatal(err)
	}
	b.Kubectl("wait", "vmexport/busy", "--for=jsonpath={.status.phase}=Ready", "--timeout=90s")
	fixture.HasTexts(b.T, v.Must("vmexport", "delete", "busy"), "deleted succesfully") //nolint:misspell // as upstream spells it
	v.Must("vmexport", "create", "short", "--pvc", "file", "--ttl=10s")
	b.Wait("the export and its server to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		_, err := b.Client.CoreV1().Pods(b.Namespace).Get(ctx, "virt-export-short", metav1.GetOptions{})
		text := b.Kubectl("get", "vmexports", "-o", "name")
		return strings.TrimSpace(text) == "" && apierrors.IsNotFound(err), fmt.Sprint(text, err)
	})
}

// TestExportMachine: the disks of a machine that is stopped, and those of a snapshot that was taken while it ran, come out as they
// were; those of a machine that runs do not.
func TestExportMachine(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	vm := y.MovableMachine("out", kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "out-root"}}})
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "out-root"}, Spec: fixture.BlankDisk(fixture.ClassDisk)}}
	y.CreateMachine(fixture.InClaimTemplates(vm))
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "write", 1, "root")
	if o := v.Run("vmexport", "download", "early", "--vm=out", "--output", filepath.Join(t.TempDir(), "x"), "--readiness-timeout=3s"); o.Code == 0 ||
		!strings.Contains(o.Err, "VirtualMachine out runs") {
		t.Errorf("a download of a machine that runs: %d %s", o.Code, o.Err)
	}
	y.SnapshotMachine("then", "out")
	y.RunPattern(vm, "write", 2, "root")
	v.Must("stop", "out", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)

	dir := t.TempDir()
	sums := map[string]string{}
	for _, source := range []string{"vm=out", "snapshot=then", "vm=out"} {
		path := filepath.Join(dir, strings.ReplaceAll(source, "=", "-"))
		v.Must("vmexport", "download", "late", "--"+source, "--format=raw", "--output", path)
		got, size := hashed(t, opened(t, path))
		if size == 0 || sums[source] != "" && sums[source] != got {
			t.Errorf("%s came out as %d bytes, another time as others", source, size)
		}
		sums[source] = got
	}
	if sums["vm=out"] == sums["snapshot=then"] {
		t.Error("the snapshot has what the guest wrote later")
	}
	var left corev1.PersistentVolumeClaimList
	y.Wait("what was made from the snapshot to be gone", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := y.Kube.List(ctx, &left)
		for _, c := range left.Items {
			if c.Namespace == y.Namespace && strings.HasPrefix(c.Name, "export-") {
				return false, c.Name
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}
