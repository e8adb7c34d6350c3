package diskrelease

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// GiveMasters takes the launcher out of the holders of masters that its copies have all of. One that is also another volume of the
// machine's stays.
func (r *Reconciler) GiveMasters(ctx context.Context, s *observed.Instance) error {
	if !s.MakesCopies() {
		return nil
	}
	for _, d := range s.Disks {
		if d.Copied == nil || d.State != machine.Ready || !slices.Contains(s.CopyPlan(d.Name, d.Copied).Do, machine.GiveMaster) {
			continue
		}
		needed := func(o diskstate.Disk) bool {
			return o.Name != d.Name && o.ID == d.ID && (o.Copied == nil || s.CopyPlan(o.Name, o.Copied).Reason != machine.CopyIndependent)
		}
		if slices.ContainsFunc(s.AllDisks(), needed) {
			continue
		}
		if err := r.giveMaster(ctx, s, d); err != nil {
			return fmt.Errorf("%s of volume %s: %w", machine.GiveMaster, d.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) giveMaster(ctx context.Context, s *observed.Instance, d diskstate.Disk) error {
	return r.Read.Records.GiveBackOne(ctx, s.Launcher.UID, d.ID)
}
