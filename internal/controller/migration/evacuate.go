package migration

import (
	"context"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// calledOff: somebody cancelled a migration that was made to empty a node. The wish to evict the guest's pod goes with it, and one that comes
// again, from a drain that is still under way, is not followed at once. It is done before the migration is said to have ended: the next would be
// made then.
func (r *Reconciler) calledOff(ctx context.Context, v *Move) error {
	p := v.Source
	if v.Migration.Annotations[kubevirt.AnnEvacuation] == "" || v.Migration.DeletionTimestamp == nil || p == nil || launcherpod.Ended(p) != "" || p.DeletionTimestamp != nil ||
		p.Annotations[render.AnnEvacuate] == "" {
		return nil
	}
	_, err := r.Tries.KeepHere(ctx, p)
	return err
}
