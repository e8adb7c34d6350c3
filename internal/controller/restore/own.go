package restore

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/snapshot"
)

// own has the restore go with the machine that it is for. A machine that it must not touch is not its owner.
func (r *Reconciler) own(ctx context.Context, b *observed, f snapshot.RestoreFacts) error {
	if b.vm == nil || f.Machine == snapshot.Other || f.Over != snapshot.NotOver || f.Withdrawn || f.Source == snapshot.Pending ||
		b.vm.DeletionTimestamp != nil || len(b.of.OwnerReferences) > 0 {
		return nil
	}
	next := b.of.DeepCopy()
	next.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))}
	if err := r.cluster.Change(ctx, b.of, next); err != nil {
		return err
	}
	b.of = next
	return nil
}
