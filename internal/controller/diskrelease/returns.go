package diskrelease

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-vm/berth/internal/controller/observed"
)

// DropSurplus frees them when the launcher says that its guest has none of them.
func (r *Reconciler) DropSurplus(ctx context.Context, s *observed.Instance) error {
	has := slices.ContainsFunc(s.Returns.Has, func(name string) bool {
		return !slices.ContainsFunc(s.Added, func(h *observed.Added) bool { return h.Name == name })
	})
	// An answer may be an old one: it counts if the launcher had the orders that no longer have these disks.
	if len(s.Surplus) == 0 || !s.Answered || has || s.Returns.Serial != s.LastOrders().Serial || !equality.Semantic.DeepEqual(s.DiskOrders(), s.LastOrders()) {
		return nil
	}
	return r.Read.Records.GiveBack(ctx, s.Launcher.UID, s.Wanted)
}
