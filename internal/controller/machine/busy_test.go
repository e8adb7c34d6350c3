package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/names"
)

// TestRestoreOf: a machine waits for its restore until that is over, and for one that was deleted until its finalizer is gone: it may
// have replaced some of the machine's claims.
func TestRestoreOf(t *testing.T) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm"}}
	now := metav1.Now()
	progressing := snapshotv1.Condition{Type: snapshotv1.ConditionProgressing, Status: corev1.ConditionTrue, Message: "a volume cannot be made"}
	for name, c := range map[string]struct {
		change func(r *snapshotv1.VirtualMachineRestore)
		want   string
	}{
		"new":                {func(*snapshotv1.VirtualMachineRestore) {}, "VirtualMachineRestore back"},
		"going on":           {func(r *snapshotv1.VirtualMachineRestore) { r.Status.Conditions = []snapshotv1.Condition{progressing} }, "VirtualMachineRestore back: a volume cannot be made"},
		"of another machine": {func(r *snapshotv1.VirtualMachineRestore) { r.Spec.Target.Name = "other" }, ""},
		"complete": {func(r *snapshotv1.VirtualMachineRestore) {
			r.Status.Conditions = []snapshotv1.Condition{{Type: snapshotv1.ConditionReady, Status: corev1.ConditionTrue}}
		}, ""},
		"deleted, with claims": {func(r *snapshotv1.VirtualMachineRestore) {
			r.DeletionTimestamp, r.Finalizers = &now, []string{names.RestoreFinalizer}
		}, "VirtualMachineRestore back"},
		"deleted, kept by others": {func(r *snapshotv1.VirtualMachineRestore) {
			r.DeletionTimestamp, r.Finalizers = &now, []string{"foregroundDeletion"}
		}, ""},
		"complete and not yet let go": {func(r *snapshotv1.VirtualMachineRestore) {
			r.Finalizers = []string{names.RestoreFinalizer}
			r.Status.Conditions = []snapshotv1.Condition{{Type: snapshotv1.ConditionReady, Status: corev1.ConditionTrue}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "back"}}
			r.Spec.Target.Name = vm.Name
			c.change(r)
			found, err := compose.RestoreOf(t.Context(), fake.NewClientBuilder().WithScheme(scheme()).WithObjects(r).Build(), vm)
			got := ""
			if found != nil {
				got = compose.RestoreText(found)
			}
			if err != nil || got != c.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
