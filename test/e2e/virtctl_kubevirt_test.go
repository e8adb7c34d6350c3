//go:build peers && e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// newTheirTool is KubeVirt's own virtctl, built out of its module and not changed.
func newTheirTool(t *testing.T, env *framework.Env) *tool {
	t.Helper()
	return toolOf(t, env, "../../bin/kubevirt-virtctl", "make virtctl-kubevirt")
}

// TestKubeVirtsVirtctlUpload: KubeVirt's own virtctl uploads into volumes and bare claims, into files and a device, and downloads what it
// uploaded. The bytes are the same at every end.
func TestKubeVirtsVirtctlUpload(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	v := newTheirTool(t, b.Env)
	data := image(24)
	raw, url := file(t, "disk.img", data), proxyURL(b)
	send := func(kind, name string, flags ...string) {
		t.Helper()
		out := v.must(append([]string{"image-upload", kind, name, "--image-path=" + raw, "--insecure", "--uploadproxy-url=" + url}, flags...)...)
		has(t, out, "Processing completed successfully", "Uploading "+raw+" completed successfully")
	}
	send("dv", "file", "--size=40Mi", "--storage-class="+classImmediate)
	send("dv", "device", "--size=64Mi", "--storage-class="+classDiskImmediate, "--volume-mode=block", "--access-mode=ReadWriteOnce")
	send("pvc", "bare", "--size=40Mi", "--storage-class="+classImmediate)

	// A volume that waits for its first consumer is refused with the reason, and taken when virtctl is told to have it bound.
	held := v.run("image-upload", "dv", "held", "--image-path="+raw, "--size=40Mi", "--storage-class="+classWaits, "--insecure", "--uploadproxy-url="+url)
	if held.code == 0 || !strings.Contains(held.err, "WaitForFirstConsumer") {
		t.Errorf("a held volume: code %d\n%s%s", held.code, held.out, held.err)
	}
	send("dv", "forced", "--size=40Mi", "--storage-class="+classWaits, "--force-bind")
	again := v.run("image-upload", "dv", "file", "--no-create", "--image-path="+raw, "--insecure", "--uploadproxy-url="+url)
	if again.code == 0 || !strings.Contains(again.err, "already successfully imported") {
		t.Errorf("a filled volume: code %d\n%s%s", again.code, again.out, again.err)
	}

	for _, name := range []string{"file", "forced", "device"} {
		if p := b.get(name).Status.Phase; p != cdiv1.Succeeded {
			t.Errorf("volume %s is %s", name, p)
		}
		b.begins(name, data)
	}
	b.begins("bare", data)
	b.theirExport(v, "file", data)
}

// theirExport downloads a claim with KubeVirt's own virtctl and compares it.
func (b *bed) theirExport(v *tool, claim string, data []byte) {
	b.T.Helper()
	path := filepath.Join(b.T.TempDir(), "out.img")
	v.must("vmexport", "download", "out", "--pvc="+claim, "--format=raw", "--port-forward", "--output="+path)
	if got, size := hashed(b.T, opened(b.T, path)); size < int64(len(data)) || got != sum(data, size) {
		b.T.Errorf("%d bytes come out as %s", size, got)
	}
	if left := strings.TrimSpace(b.kubectl("get", "vmexports", "-o", "name")); left != "" {
		b.T.Errorf("the export is left: %s", left)
	}
}

// TestKubeVirtsVirtctlMachine: KubeVirt's own virtctl starts a machine, adds a disk to it and takes it out, pauses it, moves it to another
// node, starts it anew and stops it.
func TestKubeVirtsVirtctlMachine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTheirTool(t, y.Env)
	has(t, v.must("version"), "Client Version: ", "Server Version: ")
	says := func(want string, args ...string) {
		t.Helper()
		if out := v.must(args...); !strings.Contains(out, want) {
			t.Errorf("virtctl %s says %q, want %q", strings.Join(args, " "), out, want)
		}
	}
	vm := y.mover("web")
	vm.Spec.RunStrategy = new(kubevirt.RunHalted)
	y.create(vm)
	y.status(vm, kubevirt.StatusStopped, patience)
	says("VM web was scheduled to start", "start", "web")
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")

	y.volume("extra", classWaits)
	says("Successfully submitted add volume request to VM web for volume extra", "addvolume", "web", "--volume-name=extra", "--serial=EXTRA")
	y.guestSays(vm, "serial=EXTRA size=67108864")
	says("Successfully submitted remove volume request to VM web for volume extra", "removevolume", "web", "--volume-name=extra")
	y.guestSays(vm, "disk removed sd")

	says("VMI web was scheduled to pause", "pause", "vm", "web")
	y.status(vm, kubevirt.StatusPaused, patience)
	says("VMI web was scheduled to unpause", "unpause", "vm", "web")
	y.status(vm, kubevirt.StatusRunning, patience)

	y.theirMove(v, vm)
	before := y.instance(t.Context(), vm).UID
	says("VM web was scheduled to restart", "restart", "web")
	y.Wait("another instance", boot, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		return i != nil && i.UID != before && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprint(i)
	})
	says("VM web was scheduled to stop", "stop", "web", "--force", "--grace-period=0")
	y.status(vm, kubevirt.StatusStopped, boot)
}

// theirMove moves a machine with KubeVirt's own virtctl.
func (y *yard) theirMove(v *tool, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	from := y.instance(y.Context(), vm).Status.NodeName
	has(y.T, v.must("migrate", vm.Name), "VM web was scheduled to migrate")
	y.Wait("the machine to be on another node", moving, func(ctx context.Context) (bool, string) {
		var all kubevirt.VirtualMachineInstanceMigrationList
		if err := y.kube.List(ctx, &all, client.InNamespace(y.Namespace)); err != nil || len(all.Items) != 1 {
			return false, fmt.Sprint(len(all.Items), " migrations, ", err)
		}
		return all.Items[0].Status.Phase == kubevirt.MigrationSucceeded && y.instance(ctx, vm).Status.NodeName != from, migrationSays(&all.Items[0])
	})
	y.oneLauncher(vm)
	y.answer(vm, "disks")
}
