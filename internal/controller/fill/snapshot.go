package fill

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// snapshotName is the name of the snapshot that a clone is made through: the volume's UID says whose it is.
func (s *Seen) snapshotName() string { return "clone-" + string(s.order.UID) }

// prepareSnapshot makes the claim to be created one that is restored from a snapshot, as soon as that is ready.
func (e *Engine) prepareSnapshot(ctx context.Context, s *Seen) error {
	o := &s.origin
	name := s.snapshotName()
	if o.claim != nil {
		taken, err := volumesnapshot.Read(ctx, e.objects, s.order.Namespace, name)
		if err != nil {
			return err
		}
		if taken == nil || !volumesnapshot.Ready(taken) {
			o.fact, o.again = volume.Preparing, snapshotEvery
			return nil
		}
		o.snapshot = taken
	} else {
		name = o.snapshot.GetName()
	}
	s.wanted.DataSource = volumesnapshot.Source(name)
	return nil
}

// freeze has a snapshot taken of a source that a pod uses, if its class can, to be read from in its stead. A snapshot that was begun
// with is gone on with, whatever the pod does meanwhile.
func (e *Engine) freeze(ctx context.Context, s *Seen, user string) error {
	o, class := &s.origin, ""
	if s.claim != nil && (s.claimFact() == volume.Bound || s.claimFact() == volume.Waiting) {
		var err error
		if class, err = volumesnapshot.ClassOf(ctx, e.objects, o.class); err != nil {
			return err
		}
	}
	if class == "" {
		if user != "" {
			o.is(volume.Busy, "pod %s uses it", user)
			o.again = refusedEvery // a volume that names its source by a reference is not told when the pod ends
		}
		return nil
	}
	taken, err := volumesnapshot.Read(ctx, e.objects, s.serverSpace(), s.snapshotName())
	if err != nil || taken == nil && o.restored == nil && user == "" {
		return err
	}
	o.via, o.why = s.snapshotName(), o.why+"; the source was in use, so a snapshot of it is read"
	o.mode = corev1.PersistentVolumeFilesystem
	if isBlock(o.claim.Spec.VolumeMode) {
		o.mode = corev1.PersistentVolumeBlock
	}
	if o.restored == nil && (taken == nil || !volumesnapshot.Ready(taken)) {
		o.fact, o.again = volume.Preparing, snapshotEvery
	}
	return nil
}

// takeSnapshot asks for a snapshot of the source. It belongs to the volume and is removed when the clone is complete.
func (e *Engine) takeSnapshot(ctx context.Context, s *Seen) error {
	class, err := volumesnapshot.ClassOf(ctx, e.objects, s.origin.class)
	if err != nil {
		return err
	}
	if s.acrossSpaces() {
		if err := e.hold(ctx, s, true); err != nil {
			return err
		}
	}
	snap := volumesnapshot.New(s.serverSpace(), s.snapshotName(), class, s.origin.claim.Name)
	snap.Labels = render.Labels("cdi-smart-clone")
	if !s.acrossSpaces() {
		snap.OwnerReferences = []metav1.OwnerReference{s.order.Owner}
	}
	return e.cluster.Create(ctx, snap)
}

// dropSnapshot removes the snapshot a clone was made through.
func (e *Engine) dropSnapshot(ctx context.Context, s *Seen) error {
	if s.claim == nil || !isFrom(s.claim, s.snapshotName()) {
		return nil
	}
	return e.deleteSnapshot(ctx, s)
}

// isFrom: the claim is restored from the snapshot.
func isFrom(c *corev1.PersistentVolumeClaim, snapshot string) bool {
	return c.Spec.DataSource != nil && c.Spec.DataSource.Name == snapshot
}

func (e *Engine) deleteSnapshot(ctx context.Context, s *Seen) error {
	taken, err := volumesnapshot.Read(ctx, e.objects, s.serverSpace(), s.snapshotName())
	if err != nil || taken == nil || taken.GetDeletionTimestamp() != nil {
		return err
	}
	return e.cluster.Delete(ctx, taken)
}
