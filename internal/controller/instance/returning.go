package instance

import (
	"context"
	"time"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
)

// internal/controller/relocate gives claims the volumes that their data moved to. Until a move is complete, no pod is started with
// the claim.

// returnAgain is how often a claim is checked that is about to get its volume.
const returnAgain = time.Second

// unreplaced asks the server, not the cache, whether the data of the claims that a pod is about to be made with is on their volumes.
func (r *Reconciler) unreplaced(ctx context.Context, s *observed.Instance) error {
	for _, d := range s.Disks {
		if !d.Stays() {
			continue
		}
		last, _, err := replacedclaim.Of(ctx, r.Read.Live, s.Object.Namespace, d.Claim.Name)
		if err != nil {
			return err
		}
		if last != nil {
			return diskstate.NotYet(d.Claim.Name)
		}
	}
	return nil
}
