package migration

import (
	"context"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// calledOff handles a migration for a drain that a user cancelled. The eviction request of the guest's pod is removed with it, and
// a new one, from a drain that is still under way, is not followed at once. This is done before the migration is reported as
// ended, because the next one would be made then.
func (r *Reconciler) calledOff(ctx context.Context, v *Move) error {
	p := v.Source
	if v.Migration.Annotations[kubevirt.AnnEvacuation] == "" || v.Migration.DeletionTimestamp == nil || p == nil || launcherpod.Ended(p) != "" || p.DeletionTimestamp != nil ||
		p.Annotations[render.AnnEvacuate] == "" {
		return nil
	}
	_, err := r.Tries.KeepHere(ctx, p)
	return err
}
