package machine

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/report"
)

// TestClaimIsGivenToItsMachine: a claim whose owner was changed from its DataVolume to the machine is a disk of the machine, whether the
// DataVolume is still there or not. It is not made again, and a claim that was not full when it was given is not booted from.
func TestClaimIsGivenToItsMachine(t *testing.T) {
	is := func(kind, uid string, controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "x/v1", Kind: kind, Name: vmName, UID: types.UID(uid), Controller: controller}
	}
	for name, c := range map[string]struct {
		owner   metav1.OwnerReference
		phase   string // of its transfer
		deleted bool   // the DataVolume
		status  kubevirt.PrintableStatus
		volumes int // that are there in the end
	}{
		"with its DataVolume":     {is("VirtualMachine", "vm-uid", new(true)), "Succeeded", false, kubevirt.StatusRunning, 2},
		"without":                 {is("VirtualMachine", "vm-uid", new(true)), "Succeeded", true, kubevirt.StatusRunning, 1},
		"owned, not controlled":   {is("VirtualMachine", "vm-uid", nil), "Succeeded", true, kubevirt.StatusRunning, 1},
		"to another machine":      {is("VirtualMachine", "other", new(true)), "Succeeded", false, kubevirt.StatusProvisioning, 2},
		"before it was full":      {is("VirtualMachine", "vm-uid", new(true)), "Running", false, kubevirt.StatusProvisioning, 2},
		"to another DataVolume":   {is("DataVolume", "vm-uid", new(true)), "Succeeded", false, kubevirt.StatusProvisioning, 2},
		"before it was full, too": {is("VirtualMachine", "vm-uid", new(true)), "Running", true, kubevirt.StatusProvisioning, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, scenario{strategy: kubevirt.RunManual})
			w.run()
			claim, err := cluster.Get[corev1.PersistentVolumeClaim](t.Context(), w.api, ns, vmName+"-root")
			w.must(err)
			claim.OwnerReferences = []metav1.OwnerReference{c.owner}
			claim.Annotations = map[string]string{clonesource.AnnPodPhase: c.phase}
			w.must(w.api.Update(t.Context(), claim))
			if c.deleted {
				w.must(w.api.Delete(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName + "-root"}}))
			}
			w.settle()
			requests(kubevirt.StartRequest)(w)
			w.settle()
			var volumes cdiv1.DataVolumeList
			w.must(w.api.List(context.Background(), &volumes))
			if got := w.vm().Status; got.PrintableStatus != c.status || len(volumes.Items) != c.volumes {
				t.Errorf("it is %s with %d DataVolumes: %+v", got.PrintableStatus, len(volumes.Items), got.Conditions)
			}
		})
	}
}

// TestImportKeepsFailing: a machine says DataVolumeError while the last try to fill one of its disks failed, running or not, and
// continues when one succeeds.
func TestImportKeepsFailing(t *testing.T) {
	for _, reason := range []string{"Error", "ImagePullFailed"} {
		for strategy, then := range map[kubevirt.RunStrategy]kubevirt.PrintableStatus{kubevirt.RunAlways: kubevirt.StatusRunning, kubevirt.RunHalted: kubevirt.StatusStopped} {
			for _, held := range []bool{false, true} {
				if held && strategy == kubevirt.RunHalted {
					continue // nothing is tried before there is a consumer
				}
				w := newWorld(t, scenario{strategy: strategy, held: held})
				w.failing = reason
				w.run()
				if got := w.vm().Status; got.PrintableStatus != kubevirt.StatusDataVolumeError || report.ReasonOf(got.Conditions) != "DataVolumeRetrying" {
					t.Errorf("%s, %s: it is %s: %+v", reason, strategy, got.PrintableStatus, got.Conditions)
				}
				w.failing = ""
				w.settle()
				if got := w.vm().Status; got.PrintableStatus != then {
					t.Errorf("%s, %s: in the end it is %s: %+v", reason, strategy, got.PrintableStatus, got.Conditions)
				}
			}
		}
	}
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
	w.failing = "Completed"
	w.run()
	if got := w.vm().Status.PrintableStatus; got != kubevirt.StatusProvisioning {
		t.Errorf("a volume that has not failed: %s", got)
	}
}
