package vm

import (
	"context"

	"github.com/berth-vm/berth/internal/controller/compose"
)

// createRevisions makes what the machine's record of its instance type and preference will name.
func (r *Reconciler) createRevisions(ctx context.Context, w *compose.Machine) error {
	for _, c := range w.Kind.Copies {
		if err := r.Cluster.Create(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
