package datavolume

import (
	"context"
	"time"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/pkg/claim"
)

// origin is what a clone is made of.
type origin struct {
	fact  volume.Origin
	flow  volume.Flow
	why   string
	again time.Duration
}

func (o origin) request() *claim.Source { return nil }

func (r *Reconciler) observeOrigin(_ context.Context, _ *seen) error { return nil }
