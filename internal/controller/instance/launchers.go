package instance

import (
	"context"

	"github.com/berth-vm/berth/internal/controller/observed"
)

// stopOthers deletes them.
func (r *Reconciler) stopOthers(ctx context.Context, s *observed.Instance) error {
	for _, p := range s.Others {
		if p.DeletionTimestamp == nil {
			if err := r.Cluster.Delete(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}
