package restore

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// TestRestoreRefuses: a running machine, another user's claim and a snapshot that lost a part are left alone.
func TestRestoreRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		running bool
		spoil   func(w *world)
	}{
		{"a machine that runs", true, func(*world) {}},
		{"a claim of somebody else", false, func(w *world) {
			claim := read[corev1.PersistentVolumeClaim](w, "vm-disk")
			claim.OwnerReferences[0].UID = "another"
			w.must(w.api.Update(context.Background(), claim))
		}},
		{"a snapshot without its volume", false, func(w *world) {
			w.must(w.api.Delete(context.Background(), &volumesnapshot.Snapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vmsnapshot-snap-uid-volume-root"}}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.running, false)
			w.snapshot()
			c.spoil(w)
			w.restore(snapshotv1.FailImmediate)
			r := read[snapshotv1.VirtualMachineRestore](w, "back")
			failed := slices.ContainsFunc(r.Status.Conditions, func(c snapshotv1.Condition) bool { return c.Type == snapshotv1.ConditionFailure })
			if !failed {
				t.Errorf("not refused: %+v", r.Status)
			}
			if claim := read[corev1.PersistentVolumeClaim](w, "vm-disk"); claim.UID != "old" {
				t.Error("the claim is another one")
			}
		})
	}
}
