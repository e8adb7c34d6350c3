package instance

import (
	"context"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// recordStart writes on the instance that its guest may have started from now on.
func (r *Reconciler) recordStart(ctx context.Context, i *kubevirt.VirtualMachineInstance) error {
	if observed.RecordedStart(i) {
		return nil
	}
	return r.Cluster.Annotate(ctx, i, observed.AnnStarted, string(i.UID))
}

// neverRan asks the server, not the cache, whether the instance has had its guest: the pod that ran it may be gone from one cache before
// its end is in the other.
func (r *Reconciler) neverRan(ctx context.Context, i *kubevirt.VirtualMachineInstance) error {
	now, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Read.Live, i.Namespace, i.Name)
	if err != nil {
		return err
	}
	if now == nil || now.UID != i.UID || observed.RecordedEnd(now) != nil || observed.RecordedStart(now) {
		return observed.Outdated(i)
	}
	return nil
}
