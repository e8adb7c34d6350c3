package machine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/machinefields"
)

// asking are specs that ask for what guests here cannot have, by the path of the field.
var asking = map[string]string{
	"domain.cpu.dedicatedCpuPlacement":          "{domain: {cpu: {dedicatedCpuPlacement: true}}}",
	"domain.cpu.isolateEmulatorThread":          "{domain: {cpu: {isolateEmulatorThread: true}}}",
	"domain.cpu.numa":                           "{domain: {cpu: {numa: {guestMappingPassthrough: {}}}}}",
	"domain.cpu.realtime":                       "{domain: {cpu: {realtime: {}}}}",
	"domain.devices.autoattachVSOCK":            "{domain: {devices: {autoattachVSOCK: true}}}",
	"domain.devices.disks[].lun.reservation":    "{domain: {devices: {disks: [{name: a, lun: {reservation: true}}]}}}",
	"domain.devices.downwardMetrics":            "{domain: {devices: {downwardMetrics: {}}}}",
	"domain.devices.filesystems":                "{domain: {devices: {filesystems: [{name: a, virtiofs: {}}]}}}",
	"domain.devices.gpus":                       "{domain: {devices: {gpus: [{name: a, deviceName: b}]}}}",
	"domain.devices.hostDevices":                "{domain: {devices: {hostDevices: [{name: a, deviceName: b}]}}}",
	"domain.devices.interfaces[].binding":       "{domain: {devices: {interfaces: [{name: a, binding: {name: b}}]}}}",
	"domain.devices.interfaces[].macvtap":       "{domain: {devices: {interfaces: [{name: a, macvtap: {}}]}}}",
	"domain.devices.interfaces[].sriov":         "{domain: {devices: {interfaces: [{name: a, sriov: {}}]}}}",
	"domain.devices.tpm.persistent":             "{domain: {devices: {tpm: {persistent: true}}}}",
	"domain.devices.watchdog.diag288":           "{domain: {devices: {watchdog: {name: a, diag288: {action: reset}}}}}",
	"domain.firmware.bootloader.efi.secureBoot": "{domain: {firmware: {bootloader: {efi: {secureBoot: true}}}}}",
	"domain.launchSecurity":                     "{domain: {launchSecurity: {sev: {}}}}",
	"networks[].multus":                         "{networks: [{name: a, multus: {networkName: b}}]}",
	"networks[].resourceClaim":                  "{networks: [{name: a, resourceClaim: {claimName: b}}]}",
	"resourceClaims":                            "{resourceClaims: [{name: a, resourceClaimName: b}]}",
	"utilityVolumes":                            "{utilityVolumes: [{name: a, claimName: b}]}",
	"volumes[].containerPath":                   "{volumes: [{name: a, containerPath: {path: /a}}]}",
	"volumes[].downwardMetrics":                 "{volumes: [{name: a, downwardMetrics: {}}]}",
	"volumes[].memoryDump":                      "{volumes: [{name: a, memoryDump: {claimName: b}}]}",
	"volumes[].serviceAccount":                  "{volumes: [{name: a, serviceAccount: {serviceAccountName: b}}]}",
}

// TestEveryRefusalSurvives: each field that is refused is found in a spec that has been read into Go types, so the controller sees what admission sees.
func TestEveryRefusalSurvives(t *testing.T) {
	for _, f := range machinefields.Instance {
		if f.Effect != machinefields.Refused {
			continue
		}
		var spec kubevirt.VirtualMachineInstanceSpec
		if err := yaml.Unmarshal([]byte(asking[f.Path]), &spec); err != nil || asking[f.Path] == "" {
			t.Errorf("%s: %q: %v", f.Path, asking[f.Path], err)
			continue
		}
		got, err := machinefields.Unsupported(spec, "spec")
		if want := "spec." + strings.ReplaceAll(f.Path, "[]", "[0]") + " is not supported: " + f.Note; err != nil || got != want {
			t.Errorf("%s: found %q (%v), want %q", f.Path, got, err, want)
		}
	}
}

// TestRefusedFields: a machine that asks for what it cannot have, and came past admission, is not started without it and says so;
// one that runs continues; an instance without a machine is not started either.
func TestRefusedFields(t *testing.T) {
	pinned := func(yes bool) func(*world) {
		return func(w *world) {
			w.change(false, func(vm *kubevirt.VirtualMachine) {
				vm.Spec.Template.Spec.Domain.CPU = &kubevirt.CPU{DedicatedCPUPlacement: yes}
			})
		}
	}
	w := newWorld(t, scenario{strategy: kubevirt.RunManual})
	w.settle()
	pinned(true)(w)
	requests(kubevirt.StartRequest)(w)
	w.settle()
	failure := ""
	for _, c := range w.vm().Status.Conditions {
		if c.Type == "Failure" && c.Status == corev1.ConditionTrue {
			failure = c.Reason + ": " + c.Message
		}
	}
	if w.instance() != nil || w.guests != 0 || !strings.HasPrefix(failure, "FailedCreate: ") || !strings.Contains(failure, "spec.template.spec.domain.cpu.dedicatedCpuPlacement is not supported") {
		t.Errorf("%d guests; it says %q", w.guests, failure)
	}
	pinned(false)(w)
	w.settle()
	if got := w.vm().Status; got.PrintableStatus != kubevirt.StatusRunning {
		t.Fatalf("when it asks for nothing of the kind it is %s: %+v", got.PrintableStatus, got.Conditions)
	}
	pinned(true)(w)
	w.settle()
	if got := w.vm().Status.PrintableStatus; got != kubevirt.StatusRunning || w.guests != 1 {
		t.Errorf("a guest that runs is %s after %d starts", got, w.guests)
	}

	alone := newWorld(t, scenario{strategy: kubevirt.RunManual})
	remove(alone)
	alone.settle()
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName, UID: "alone"}}
	i.Spec.Domain.CPU = &kubevirt.CPU{DedicatedCPUPlacement: true}
	alone.must(alone.api.Create(t.Context(), i))
	for range 5 {
		_, err := alone.r.Instance.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(i)})
		alone.must(err)
	}
	if n := len(alone.launcherPods()); n != 0 {
		t.Errorf("it has %d launchers", n)
	}
	if got := alone.instance().Status; got.Phase != kubevirt.PhasePending || got.Reason != "FieldsNotSupported" || alone.guests != 0 {
		t.Errorf("an instance alone is %s: %s", got.Phase, got.Reason)
	}
}
