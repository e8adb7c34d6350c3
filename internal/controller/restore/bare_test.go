package restore

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// TestMachineWithoutClaims: its snapshot has the machine alone, and puts it back.
func TestMachineWithoutClaims(t *testing.T) {
	for _, running := range []bool{false, true} {
		w := newWorld(t, running, true)
		vm := read[kubevirt.VirtualMachine](w, "vm")
		vm.Spec.Template.Spec.Volumes, vm.Spec.DataVolumeTemplates = nil, nil
		vm.Spec.Template.ObjectMeta.Labels = map[string]string{"was": "here"}
		w.must(w.api.Update(context.Background(), vm))
		w.snapshot()
		s := read[snapshotv1.VirtualMachineSnapshot](w, "snap")
		if s.Status.Phase != snapshotv1.Succeeded || !ptr.Deref(s.Status.ReadyToUse, false) || s.Status.CreationTime == nil || w.frozen {
			t.Fatalf("running %t: %+v", running, s.Status)
		}
		if running {
			continue
		}
		vm = read[kubevirt.VirtualMachine](w, "vm")
		vm.Spec.Template.ObjectMeta.Labels = nil
		w.must(w.api.Update(context.Background(), vm))
		w.restore(snapshotv1.FailImmediate)
		r := read[snapshotv1.VirtualMachineRestore](w, "back")
		if vm = read[kubevirt.VirtualMachine](w, "vm"); !ptr.Deref(r.Status.Complete, false) || vm.Spec.Template.ObjectMeta.Labels["was"] != "here" {
			t.Errorf("%+v: %v", r.Status, vm.Spec.Template.ObjectMeta)
		}
	}
}

// TestDeletedPart: a snapshot whose VolumeSnapshot was deleted is checked again, is not ready to use and says which part is missing.
func TestDeletedPart(t *testing.T) {
	w := newWorld(t, false, false)
	w.snapshot()
	again := func() *snapshotv1.VirtualMachineSnapshot {
		req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: "snap"}}
		result, err := w.take.Reconcile(context.Background(), req)
		if w.must(err); result.RequeueAfter == 0 {
			t.Error("nobody looks at it again")
		}
		return read[snapshotv1.VirtualMachineSnapshot](w, "snap")
	}
	if s := again(); !ptr.Deref(s.Status.ReadyToUse, false) {
		t.Fatalf("%+v", s.Status)
	}
	var parts volumesnapshot.List
	w.must(w.api.List(context.Background(), &parts))
	if l := parts.Items[0].Labels; l[snapshotcontent.LabelSourceName] != "vm" || l[snapshotcontent.LabelSourceNamespace] != "team" {
		t.Errorf("a VolumeSnapshot has the labels %v", l)
	}
	w.must(w.api.Delete(context.Background(), &parts.Items[0]))
	if s := again(); ptr.Deref(s.Status.ReadyToUse, true) || s.Status.Error == nil || !strings.Contains(*s.Status.Error.Message, parts.Items[0].Name) {
		t.Errorf("%+v", s.Status)
	}
}

// TestRestoreIsOwned: a restore goes with the machine that it is for, as upstream.
func TestRestoreIsOwned(t *testing.T) {
	w := newWorld(t, false, false)
	w.snapshot()
	w.restore(snapshotv1.FailImmediate)
	r, vm := read[snapshotv1.VirtualMachineRestore](w, "back"), read[kubevirt.VirtualMachine](w, "vm")
	if !metav1.IsControlledBy(r, vm) || !ptr.Deref(r.Status.Complete, false) {
		t.Errorf("%+v %+v", r.OwnerReferences, r.Status)
	}
}

// TestUpstreamEvents: clients of upstream wait for these.
func TestUpstreamEvents(t *testing.T) {
	w := newWorld(t, false, false)
	told := events.NewFakeRecorder(100)
	w.writes(cluster.New(w.faults.Client(w.api.(client.WithWatch), w.admit), told, w.clock))
	w.snapshot()
	w.restore(snapshotv1.FailImmediate)
	close(told.Events)
	var all []string
	for e := range told.Events {
		all = append(all, e)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"SuccessfulVirtualMachineSnapshotContentCreate", "SuccessfulVolumeSnapshotCreate", "VirtualMachineRestoreComplete"} {
		if !strings.Contains(text, want) {
			t.Errorf("no event %s in:\n%s", want, text)
		}
	}
}

// TestContentNamesTheVolume: a content has the claims as they were, with the volumes that they had; a restore does not ask for these.
func TestContentNamesTheVolume(t *testing.T) {
	w := newWorld(t, false, false)
	w.snapshot()
	content := read[snapshotv1.VirtualMachineSnapshotContent](w, snapshotcontent.ContentName(read[snapshotv1.VirtualMachineSnapshot](w, "snap")))
	b := content.Spec.VolumeBackups[0]
	if b.VolumeName != "root" || b.PersistentVolumeClaim.Spec.VolumeName == "" {
		t.Errorf("it has volume %q of PersistentVolume %q", b.VolumeName, b.PersistentVolumeClaim.Spec.VolumeName)
	}
	again := (&target{of: &snapshotv1.VirtualMachineRestore{}, vm: read[kubevirt.VirtualMachine](w, "vm"), data: &snapshotcontent.Snapshot{Content: content}}).newClaim(
		restoredClaim{Part: snapshotcontent.Part{Claim: b.PersistentVolumeClaim}})
	if again.Spec.VolumeName != "" {
		t.Errorf("its claim is made with PersistentVolume %s", again.Spec.VolumeName)
	}
}
