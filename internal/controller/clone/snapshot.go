package clone

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// snapshotName returns the name of the snapshot that a clone is made through: the volume's UID says whose it is.
func (o *Order) snapshotName() string { return "clone-" + string(o.UID) }

// takeSnapshot asks for a snapshot of the source. It belongs to the volume and is removed when the clone is complete.
func (c *Cloner) takeSnapshot(ctx context.Context, s *Seen) error {
	if s.acrossSpaces() {
		if err := c.hold(ctx, s, true); err != nil {
			return err
		}
	}
	snap := volumesnapshot.New(s.at.Namespace, s.order.snapshotName(), s.classes.source, s.found.Claim.Name)
	snap.Labels = render.Labels("cdi-smart-clone")
	if !s.acrossSpaces() {
		snap.OwnerReferences = []metav1.OwnerReference{s.order.Owner}
	}
	return c.cluster.Create(ctx, snap)
}

// DropSnapshot removes the snapshot that a claim was to be made from.
func (c *Cloner) DropSnapshot(ctx context.Context, s *Seen) error {
	if s.target.Claim == nil || !isFrom(s.target.Claim, s.order.snapshotName()) {
		return nil
	}
	return c.deleteSnapshot(ctx, s)
}

// DropOutdated removes a snapshot that may have been taken of the source before another way was chosen.
func (c *Cloner) DropOutdated(ctx context.Context, s *Seen) error {
	if !s.chosen || s.found.Claim == nil || s.classes.target == "" || s.strategy == clone.Snapshot {
		return nil
	}
	return c.deleteSnapshot(ctx, s)
}

// isFrom reports whether the claim is restored from the snapshot.
func isFrom(c *corev1.PersistentVolumeClaim, snapshot string) bool {
	return c.Spec.DataSource != nil && c.Spec.DataSource.Name == snapshot
}

func (c *Cloner) deleteSnapshot(ctx context.Context, s *Seen) error {
	taken, err := volumesnapshot.Read(ctx, c.objects, s.at.Namespace, s.order.snapshotName())
	if err != nil || taken == nil || taken.DeletionTimestamp != nil {
		return err
	}
	return c.cluster.Delete(ctx, taken)
}
