//go:build peers && e2e

package virtctl

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// theirVersions are the versions of KubeVirt whose virtctl Berth is tested with.
var theirVersions = []string{"1.7", "1.9"}

// withEach runs a test with the virtctl of each version of KubeVirt, built out of its module and not changed.
func withEach(t *testing.T, test func(t *testing.T, program string)) {
	t.Helper()
	for _, version := range theirVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, "../../../bin/kubevirt-virtctl-"+version)
		})
	}
}

func newTheirTool(t *testing.T, env *framework.Env, program string) *fixture.Virtctl {
	t.Helper()
	return fixture.VirtctlAt(t, env, program, "make virtctl-kubevirt")
}

// says runs a command that has to succeed and to print a text.
func says(v *fixture.Virtctl, want string, args ...string) {
	v.Env.T.Helper()
	if out := v.Must(args...); !strings.Contains(out, want) {
		v.Env.T.Errorf("virtctl %s says %q, want %q", strings.Join(args, " "), out, want)
	}
}

// refused runs a command that has to fail and to say why.
func refused(v *fixture.Virtctl, why string, args ...string) {
	v.Env.T.Helper()
	if o := v.Run(args...); o.Code == 0 || !strings.Contains(o.Err+o.Out, why) {
		v.Env.T.Errorf("virtctl %s: code %d, want %q\n%s%s", strings.Join(args, " "), o.Code, why, o.Out, o.Err)
	}
}

// TestKubeVirtsVirtctlUpload: KubeVirt's own virtctl uploads into volumes and bare claims, into files and a device, and downloads what it
// uploaded. The bytes are the same at every end.
func TestKubeVirtsVirtctlUpload(t *testing.T) { withEach(t, theirUpload) }

func theirUpload(t *testing.T, program string) {
	b := fixture.NewVolumes(t)
	v := newTheirTool(t, b.Env, program)
	data := fixture.DiskImage(24)
	raw, url := fixture.WriteFile(t, "disk.img", data), proxyURL(b)
	send := func(kind, name string, flags ...string) {
		t.Helper()
		out := v.Must(append([]string{"image-upload", kind, name, "--image-path=" + raw, "--insecure", "--uploadproxy-url=" + url}, flags...)...)
		fixture.HasTexts(t, out, "Processing completed successfully", "Uploading "+raw+" completed successfully")
	}
	send("dv", "file", "--size=40Mi", "--storage-class="+fixture.ClassImmediate)
	send("dv", "device", "--size=64Mi", "--storage-class="+fixture.ClassDiskImmediate, "--volume-mode=block", "--access-mode=ReadWriteOnce")
	send("pvc", "bare", "--size=40Mi", "--storage-class="+fixture.ClassImmediate)

	// A volume that waits for its first consumer is refused with the reason, and taken when virtctl is told to have it bound.
	held := v.Run("image-upload", "dv", "held", "--image-path="+raw, "--size=40Mi", "--storage-class="+fixture.ClassWaits, "--insecure", "--uploadproxy-url="+url)
	if held.Code == 0 || !strings.Contains(held.Err, "WaitForFirstConsumer") {
		t.Errorf("a held volume: code %d\n%s%s", held.Code, held.Out, held.Err)
	}
	send("dv", "forced", "--size=40Mi", "--storage-class="+fixture.ClassWaits, "--force-bind")
	again := v.Run("image-upload", "dv", "file", "--no-create", "--image-path="+raw, "--insecure", "--uploadproxy-url="+url)
	if again.Code == 0 || !strings.Contains(again.Err, "already successfully imported") {
		t.Errorf("a filled volume: code %d\n%s%s", again.Code, again.Out, again.Err)
	}

	for _, name := range []string{"file", "forced", "device"} {
		if p := b.ReadVolume(name).Status.Phase; p != cdiv1.Succeeded {
			t.Errorf("volume %s is %s", name, p)
		}
		b.BeginsWith(name, data)
	}
	b.BeginsWith("bare", data)
	theirExport(b, v, "file", data)
}

// theirExport downloads a claim with KubeVirt's own virtctl and compares it.
func theirExport(b *fixture.Volumes, v *fixture.Virtctl, claim string, data []byte) {
	b.T.Helper()
	path := filepath.Join(b.T.TempDir(), "out.img")
	v.Must("vmexport", "download", "out", "--pvc="+claim, "--format=raw", "--port-forward", "--output="+path)
	if got, size := hashed(b.T, opened(b.T, path)); size < int64(len(data)) || got != fixture.DiskSum(data, size) {
		b.T.Errorf("%d bytes come out as %s", size, got)
	}
	if left := strings.TrimSpace(b.Kubectl("get", "vmexports", "-o", "name")); left != "" {
		b.T.Errorf("the export is left: %s", left)
	}
}

// TestKubeVirtsVirtctlMachine: every verb of KubeVirt's own virtctl that is about a machine does what it does there, or is refused with the reason.
func TestKubeVirtsVirtctlMachine(t *testing.T) { withEach(t, theirMachine) }

func theirMachine(t *testing.T, program string) {
	y := fixture.NewMachines(t)
	v := newTheirTool(t, y.Env, program)
	fixture.HasTexts(t, v.Must("version"), "Client Version: ", "Server Version: ")
	vm := y.MovableMachine("web")
	vm.Spec.RunStrategy = new(kubevirt.RunHalted)
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)
	says(v, "VM web was scheduled to start", "start", "web")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "guest agent on")

	theirVolume(y, v, vm)
	says(v, "VMI web was scheduled to pause", "pause", "vm", "web")
	y.WaitStatus(vm, kubevirt.StatusPaused, fixture.Patience)
	says(v, "VMI web was scheduled to unpause", "unpause", "vm", "web")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.Patience)
	theirQuestions(y, v)
	theirRefusals(y, v)

	run := y.InstanceOf(t.Context(), vm).UID
	for times, verb := range []string{"reset", "soft-reboot"} {
		says(v, "VMI web was scheduled to "+verb, verb, "web")
		y.GuestSaysAgain(vm, "guest agent on", times+2)
	}
	if now := y.InstanceOf(t.Context(), vm).UID; now != run {
		t.Errorf("a guest that was started anew inside is instance %s, was %s", now, run)
	}
	theirMove(y, v, vm)
	says(v, "VM web was scheduled to restart", "restart", "web")
	y.Wait("another instance", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i != nil && i.UID != run && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprint(i)
	})
	says(v, "VM web was scheduled to stop", "stop", "web", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
}

// theirVolume adds a volume and removes it; what cannot be added or removed is refused in upstream's words.
func theirVolume(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	y.CreateBlankVolume("extra", fixture.ClassWaits)
	says(v, "Successfully submitted add volume request to VM web for volume extra", "addvolume", "web", "--volume-name=extra", "--serial=EXTRA")
	y.GuestSays(vm, "serial=EXTRA size=67108864")
	refused(v, "Unable to add volume [extra] because volume with that name already exists", "addvolume", "web", "--volume-name=extra")
	refused(v, "Unable to remove volume [none] because it does not exist", "removevolume", "web", "--volume-name=none")
	says(v, "Successfully submitted remove volume request to VM web for volume extra", "removevolume", "web", "--volume-name=extra")
	y.GuestSays(vm, "disk removed sd")
}

// theirQuestions: the verbs that change nothing.
func theirQuestions(y *fixture.Machines, v *fixture.Virtctl) {
	y.T.Helper()
	y.Wait("the agent of the guest", fixture.Patience, func(context.Context) (bool, string) {
		o := v.Run("guestosinfo", "web")
		return o.Code == 0, o.Err
	})
	says(v, `"prettyName": "Berth test guest"`, "guestosinfo", "web")
	says(v, `"mountPoint"`, "fslist", "web")
	says(v, `"userName"`, "userlist", "web")
	says(v, "kind: VirtualMachine", "expand", "--vm=web", "--output=yaml")
	says(v, "virt-launcher-web", "objectgraph", "web")
	says(v, "virt-launcher-web", "objectgraph", "web", "--vmi", "--output=yaml")
	says(v, "VM "+y.Namespace+"/web was canceled evacuation", "evacuate-cancel", "vm", "web")
	says(v, "VMI "+y.Namespace+"/web was canceled evacuation", "evacuate-cancel", "vmi", "web")
	says(v, "Service web successfully created for vm web", "expose", "vm", "web", "--name=web", "--port=80")
}

// theirRefusals: what is out of scope is refused with the reason.
func theirRefusals(y *fixture.Machines, v *fixture.Virtctl) {
	y.T.Helper()
	refused(v, "memory dumps are not supported", "memory-dump", "get", "web", "--claim-name=memory")
	refused(v, "memory dumps are not supported", "memory-dump", "remove", "web")
	y.CreateBlankVolume("tools", fixture.ClassImmediate)
	refused(v, "there is no image of libguestfs-tools here: name one with --image", "guestfs", "tools")
	refused(v, "Found no migration to cancel for web", "migrate-cancel", "web")
}

// TestKubeVirtsVirtctlWrites: the manifests that KubeVirt's own virtctl writes apply with strict validation, and a machine of them runs; its export,
// its clone and its credentials are those of its virtctl.
func TestKubeVirtsVirtctlWrites(t *testing.T) { withEach(t, theirManifests) }

func theirManifests(t *testing.T, program string) {
	y := fixture.NewMachines(t)
	v := newTheirTool(t, y.Env, program)
	apply := func(args ...string) {
		t.Helper()
		text := v.Must(args...)
		path := fixture.WriteFile(t, "written.yaml", []byte(text))
		y.Kubectl("apply", "--validate=strict", "-f", path)
	}
	apply("create", "instancetype", "--namespaced", "--name=small", "--cpu=1", "--memory=64Mi")
	apply("create", "preference", "--namespaced", "--name=plain", "--cpu-topology=cores")
	y.CreateBlankVolume("root", fixture.ClassDiskImmediate) // snapshots can be taken of it
	apply("create", "vm", "--name=web", "--instancetype=virtualmachineinstancetype/small", "--preference=virtualmachinepreference/plain", "--volume-pvc=src:root",
		"--run-strategy=Always")
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	v.Must("stop", "web", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)

	v.Must("credentials", "add-ssh-key", "web", "--user=admin", "--value=ssh-ed25519 AAAA one")
	says(v, "Successfully added the key to secret", "credentials", "add-ssh-key", "web", "--user=admin", "--value=ssh-ed25519 AAAA two")
	if got := y.Kubectl("get", "vm", "web", "-o", "jsonpath={.spec.template.spec.accessCredentials[*].sshPublicKey.propagationMethod.qemuGuestAgent.users[*]}"); got != "admin" {
		t.Errorf("keys are added for %q", got)
	}
	refused(v, "no secrets assigned to UserPassword AccessCredentials", "credentials", "set-password", "web", "--user=admin", "--password=secret")

	apply("create", "clone", "--name=again", "--source-name=web", "--target-name=copy")
	y.Kubectl("wait", "vmclone/again", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s")

	v.Must("vmexport", "create", "all", "--vm=web")
	y.Kubectl("wait", "vmexport/all", "--for=jsonpath={.status.phase}=Ready", "--timeout=180s")
	if out := v.Must("vmexport", "download", "all", "--manifest", "--port-forward"); !strings.Contains(out, `"kind":"VirtualMachine"`) {
		t.Errorf("the manifest of the export is %s", out)
	}
	v.Must("vmexport", "delete", "all")
	y.Kubectl("wait", "--for=delete", "vmexport/all", "--timeout=60s")
}

// theirMove moves a machine with KubeVirt's own virtctl.
func theirMove(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	from := y.InstanceOf(y.Context(), vm).Status.NodeName
	fixture.HasTexts(y.T, v.Must("migrate", vm.Name), "VM web was scheduled to migrate")
	y.Wait("the machine to be on another node", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		var all kubevirt.VirtualMachineInstanceMigrationList
		if err := y.Kube.List(ctx, &all, client.InNamespace(y.Namespace)); err != nil || len(all.Items) != 1 {
			return false, fmt.Sprint(len(all.Items), " migrations, ", err)
		}
		return all.Items[0].Status.Phase == kubevirt.MigrationSucceeded && y.InstanceOf(ctx, vm).Status.NodeName != from, fixture.MigrationSays(&all.Items[0])
	})
	y.WaitOneLauncher(vm)
	y.AnswerTo(vm, "disks")
}
