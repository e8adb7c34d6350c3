package restore

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
)

// TestForgedContent: any user with write access to a namespace may write the content of a snapshot there. One that records no
// machine is refused once, with what to do; it makes no reconciler panic, and is not checked again and again.
func TestForgedContent(t *testing.T) {
	vm, _ := machine()
	for name, recorded := range map[string]*snapshotv1.VirtualMachine{
		"no machine":  nil,
		"no spec":     {ObjectMeta: metav1.ObjectMeta{Name: vm.Name}},
		"no template": {ObjectMeta: metav1.ObjectMeta{Name: vm.Name}, Spec: kubevirt.VirtualMachineSpec{RunStrategy: new(kubevirt.RunAlways)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false, false)
			s := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "forged", UID: "forged"}}
			s.Spec.Source.Name = vm.Name
			content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: snapshotcontent.ContentName(s)}}
			content.Spec.Source.VirtualMachine = recorded
			content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{{VolumeName: "root"}}
			r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "forged"}}
			r.Spec.Target.Name, r.Spec.VirtualMachineSnapshotName = "other", s.Name
			for _, obj := range []client.Object{s, content, r} {
				if err := w.api.Create(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			for what, reconcileOne := range map[string]reconcile.Func{"snapshot": w.take.Reconcile, "restore": w.r.Reconcile} {
				_, err := reconcileOne(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
				if !errors.Is(err, reconcile.TerminalError(nil)) || !strings.Contains(err.Error(), "records no machine: delete it") {
					t.Errorf("%s: got %v", what, err)
				}
			}
		})
	}
}

// TestForgedClaim: a claim that was recorded without anything of ours is restored like any other.
func TestForgedClaim(t *testing.T) {
	vm, _ := machine()
	b := &target{of: &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, UID: "restore"}}, vm: vm,
		data: &snapshotcontent.Snapshot{Content: &snapshotv1.VirtualMachineSnapshotContent{}}}
	b.of.Spec.Target.Name = vm.Name
	b.data.Content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: vm.Name}}
	if c := b.newClaim(restoredClaim{to: "disk"}); c.Annotations[snapshotcontent.AnnRestore] != "restore" || c.Name != "disk" {
		t.Errorf("the claim is %+v", c)
	}
}
