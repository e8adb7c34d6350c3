package fill

import (
	"context"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
)

// observeAccess finds out whether another pod has the claim's disk, and whether the worker is recorded as a holder of what it
// has. A worker that has ended needs no record any more, and what is recorded as complete needs no worker.
func (e *Engine) observeAccess(ctx context.Context, s *Seen) error {
	if s.claim == nil || !s.order.owns(s.claim) || s.dataFact() != volume.None || s.worker != nil && podend.Over(s.worker) {
		return nil
	}
	wanted := accessv1.Holder{Mode: accessv1.WriteExclusive, Early: earlyUse{s}.bootsEarly()}
	other, err := e.records.Blocker(ctx, s.claim, wanted, s.worker)
	if err != nil {
		return err
	}
	if other != nil {
		s.access, s.holder = volume.Taken, diskaccess.Who(other, s.claim.Namespace)
		return nil
	}
	if s.worker == nil || s.worker.DeletionTimestamp != nil || s.worker.Annotations[render.AnnTask] == "" {
		return nil // a worker of CDI that is awaited when Berth takes over is not ours to keep
	}
	admitted, err := e.records.Admitted(ctx, s.worker)
	if !admitted {
		s.access = volume.Unrecorded
	}
	return err
}

// freeDisks releases the disks of a worker that has ended, before its data is reported as complete, so that pods that start then
// need not wait for the deletion of the worker.
func (e *Engine) freeDisks(ctx context.Context, s *Seen) error {
	if s.worker == nil || !podend.Over(s.worker) {
		return nil
	}
	return e.records.ReleaseEnded(ctx, s.worker, func() error { return nil })
}
