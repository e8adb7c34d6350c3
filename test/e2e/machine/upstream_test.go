//go:build e2e

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestSnapshotLosesAPart: a snapshot whose VolumeSnapshot was deleted is not ready to use any more, and says which is missing. Its parts are found by
// upstream's labels.
func TestSnapshotLosesAPart(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("keeps", "localdisk")
	vm.Spec.RunStrategy = new(kubevirt.RunHalted)
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	y.Kubectl("wait", "--for=create", "persistentvolumeclaim/keeps-0", "--timeout=180s")
	y.Run(framework.Pod{Name: "first", Claims: []string{"keeps-0"}, Script: "true"})
	y.Kubectl("wait", "datavolume/keeps-0", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")

	s := y.SnapshotMachine("then", vm.Name)
	if s.Status.ReadyToUse == nil || !*s.Status.ReadyToUse {
		t.Fatalf("a snapshot that succeeded says %+v", s.Status)
	}
	parts := strings.Fields(y.Kubectl("get", "volumesnapshots", "-l", "snapshot.kubevirt.io/source-vm-name="+vm.Name, "-o", "jsonpath={.items[*].metadata.name}"))
	if len(parts) != 1 {
		t.Fatalf("its VolumeSnapshots are %q", parts)
	}
	if volume := y.Kubectl("get", "vmsnapshotcontents", "-o", "jsonpath={.items[0].spec.volumeBackups[0].persistentVolumeClaim.spec.volumeName}"); volume == "" {
		t.Error("the claim in the content names no volume")
	}
	y.Kubectl("delete", "volumesnapshot", parts[0])
	y.Wait("the snapshot to say what it lost", fixture.Patience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return false, err.Error()
		}
		for _, c := range s.Status.Conditions {
			if c.Type == snapshotv1.ConditionReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, parts[0]) {
				return s.Status.ReadyToUse != nil && !*s.Status.ReadyToUse, "readyToUse is not false"
			}
		}
		return false, fmt.Sprintf("%+v", s.Status)
	})
}

// tuned are settings of machines that cost little, and what QEMU is told of each.
var tuned = map[string]string{
	"cpu: {sockets: 1, cores: 2, threads: 1, features: [{name: aes, policy: optional}]}": "sockets=1",
	"clock: {utc: {offsetSeconds: 3600}, timer: {hpet: {present: false}}}":               "base=20",
	"features: {acpi: {}, apic: {}, smm: {enabled: false}}":                              "smm=off",
	"firmware: {serial: SERIAL-OF-IT}":                                                   "SERIAL-OF-IT",
}

// tunedDevices are the same of its devices.
var tunedDevices = map[string]string{
	"rng: {}": "virtio-rng",
	"watchdog: {name: dog, i6300esb: {action: reset}}": "i6300esb",
	"inputs: [{type: tablet, bus: usb, name: tablet}]": "usb-tablet",
	"blockMultiQueue: true":                            "num-queues\":2",
	"disks: [{name: scratch, disk: {bus: virtio}, cache: none, io: native, blockSize: {custom: {logical: 4096, physical: 4096}}}]": "logical_block_size\":4096",
}

// TestMachineTuned: a machine with the settings that machines commonly have boots, and QEMU has been told each of them.
func TestMachineTuned(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.MovableMachine("tuned", kubevirt.Volume{Name: "scratch", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	kernel, guest := vm.Spec.Template.Spec.Domain.Firmware.KernelBoot, vm.Spec.Template.Spec.Domain.Memory
	text := ""
	for field := range tuned {
		text += field + "\n"
	}
	text += "devices:\n"
	for field := range tunedDevices {
		text += "  " + field + "\n"
	}
	domain := &vm.Spec.Template.Spec.Domain
	*domain = kubevirt.DomainSpec{Resources: domain.Resources}
	if err := yaml.UnmarshalStrict([]byte(text), domain); err != nil {
		t.Fatal(err)
	}
	domain.Firmware.KernelBoot, domain.Memory = kernel, guest
	vm.Spec.Template.Spec.Hostname, vm.Spec.Template.Spec.Subdomain = "tuned", "machines"
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")

	_, launchers := y.PodsOf(t.Context(), vm)
	command := y.Kubectl("exec", launchers[0].Name, "-c", "compute", "--",
		"sh", "-c", "for p in /proc/[0-9]*; do grep -q qemu-system $p/comm && tr '\\0' ' ' < $p/cmdline; done; true")
	for _, list := range []map[string]string{tuned, tunedDevices} {
		for field, want := range list {
			if !strings.Contains(command, want) {
				t.Errorf("for %s QEMU was not told %q: %s", field, want, command)
			}
		}
	}
	if p := launchers[0]; p.Spec.Hostname != "tuned" || p.Spec.Subdomain != "machines" {
		t.Errorf("the pod is %s in %s", p.Spec.Hostname, p.Spec.Subdomain)
	}
	upstreamStatus(y, vm)
}

// upstreamStatus: inventories read these of a machine and its instance.
func upstreamStatus(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	for _, condition := range []string{"LiveMigratable", "StorageLiveMigratable", "DataVolumesReady"} {
		for _, kind := range []string{"vm/", "vmi/"} {
			y.Kubectl("wait", kind+vm.Name, "--for=condition="+condition, "--timeout=60s")
		}
	}
	for _, field := range []string{".status.interfaces[0].infoSource", ".status.launcherContainerImageVersion", ".status.machine.type", ".status.memory.guestAtBoot"} {
		if y.Kubectl("get", "vmi", vm.Name, "-o", "jsonpath={"+field+"}") == "" {
			y.T.Errorf("the instance has no %s", field)
		}
	}
	var now kubevirt.VirtualMachine
	if err := y.Kube.Get(y.Context(), client.ObjectKey{Namespace: y.Namespace, Name: vm.Name}, &now); err != nil {
		y.T.Fatal(err)
	}
	if now.Status.DesiredGeneration != now.Generation || now.Status.ObservedGeneration != now.Generation {
		y.T.Errorf("generation %d, desired %d, observed %d", now.Generation, now.Status.DesiredGeneration, now.Status.ObservedGeneration)
	}
}
