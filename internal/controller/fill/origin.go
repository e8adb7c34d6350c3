package fill

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	from "github.com/berth-vm/berth/internal/origin"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// origin is what a clone is made of. Volumes that are not clones have the zero origin, which is Usable.
type origin struct {
	fact     volume.Origin
	flow     volume.Flow
	strategy clone.Strategy
	fellBack bool   // from a cheaper strategy
	why      string // of fact or strategy, for the volume's message
	again    time.Duration

	claim    *corev1.PersistentVolumeClaim // what is read; nil: there is none yet, or the source is a snapshot
	class    *storagev1.StorageClass       // of claim
	via      string                        // the snapshot that is restored to be read from; empty: claim itself is
	restored *corev1.PersistentVolumeClaim // what via was restored to
	snapshot *volumesnapshot.Snapshot      // the source itself, or the one taken of claim
	taken    *volumesnapshot.Content       // of snapshot, if that is the source
	mode     corev1.PersistentVolumeMode   // of the data of a snapshot that is read; empty: nobody says
	outdated bool                          // a snapshot may have been taken of claim before another way was chosen
	found    from.Found                    // as it is measured
	size     resource.Quantity
	server   *corev1.Pod          // the worker that serves claim to another node
	home     *corev1.NodeSelector // where the source can be used; nil: everywhere
	beside   string               // the node to make the claim on, beside the source; empty: nobody asked yet
	labels   map[string]string    // that the claim inherits; the nearest source that says something wins
}

// snapshotEvery is how often a snapshot is looked at: the snapshot API is an add-on that may not be there to watch.
const snapshotEvery = 2 * time.Second

func (o *origin) is(fact volume.Origin, format string, args ...any) {
	o.fact, o.why = fact, fmt.Sprintf(format, args...)
}

// inherit takes over what the labels of a source say to its copies, where nothing nearer has said it.
func (o *origin) inherit(labels map[string]string) {
	r := from.Resolved{Labels: o.labels}
	r.Inherit(labels)
	o.labels = r.Labels
}

// block: the data of the snapshot that is read is that of a device; otherwise is for data of which nobody says.
func (o *origin) block(otherwise bool) bool {
	if o.mode == "" {
		return otherwise
	}
	return o.mode == corev1.PersistentVolumeBlock
}

// request is the origin as far as the claim's size depends on it.
func (o *origin) request(name string) *claim.Source {
	src := o.found.Measure()
	if src != nil {
		src.Name = name
	}
	return src
}

// resolve follows a sourceRef to the claim or snapshot it stands for.
func (e *Engine) resolve(ctx context.Context, s *Seen) error {
	r, err := from.Resolve(ctx, e.objects, s.order.Namespace, &s.order.Spec)
	s.source, s.origin.labels = r.Source, r.Labels
	if r.Lacks != "" && err == nil {
		s.origin.is(volume.Missing, "%s", r.Lacks)
	}
	return err
}

// observeOrigin reads what a clone is made of.
func (e *Engine) observeOrigin(ctx context.Context, s *Seen) error {
	s.origin.flow = volume.Clone
	if err := e.resolve(ctx, s); err != nil || s.origin.fact != volume.Usable {
		return err
	}
	if s.source == nil || s.source.PVC == nil && s.source.Snapshot == nil {
		return nil
	}
	if s.claim != nil && s.claim.Spec.DataSource != nil {
		s.origin.flow = volume.Provision // its driver fills it
		if s.claim.Spec.DataSource.Kind == "VolumeSnapshot" {
			s.origin.flow = volume.Restore
		}
		if s.outgrown() {
			s.origin.flow = volume.Enlarge
		}
		if s.claim.Spec.VolumeName != "" {
			return e.observeAids(ctx, s)
		}
		if lost, err := e.lostSource(ctx, s); lost || err != nil {
			return err
		}
		return e.observePlace(ctx, s)
	}
	if s.dataFact() != volume.None {
		return e.observeAids(ctx, s)
	}
	at, _ := from.OfSource(s.order.Namespace, s.source)
	if at.Namespace != s.order.Namespace && !s.order.Allowed {
		if err := e.authorize(ctx, s, at); errors.Is(err, from.ErrForbidden) {
			s.origin.is(volume.Forbidden, "%v", err)
			s.origin.again = refusedEvery // nobody tells us of a right that somebody gets
			return nil
		} else if err != nil {
			return err
		}
	}
	return e.find(ctx, s, at)
}

// lostSource: the claim that a driver is to clone is another by now, and not filled, or is gone. Whoever consumes the clone would
// have it made of that, so it is made anew when the source is complete again.
func (e *Engine) lostSource(ctx context.Context, s *Seen) (bool, error) {
	if s.source.PVC == nil || s.claim.Spec.DataSource.Kind != "PersistentVolumeClaim" {
		return false, nil
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, s.source.PVC.Namespace, s.source.PVC.Name)
	if err != nil {
		return false, err
	}
	if c == nil {
		s.origin.is(volume.Misplaced, "its source is gone")
		return true, nil
	}
	if proof, lacks := from.Complete(c); proof == from.Unproven {
		s.origin.is(volume.Misplaced, "its source is another by now: %s", lacks)
		return true, nil
	}
	return false, nil
}

func (s *Seen) originName() (namespace, name string) {
	if s.source.Snapshot != nil {
		return s.source.Snapshot.Namespace, s.source.Snapshot.Name
	}
	return s.source.PVC.Namespace, s.source.PVC.Name
}

// find reads what is cloned. Whether it is in use comes later, once it is known how it is cloned.
func (e *Engine) find(ctx context.Context, s *Seen, at from.Ref) error {
	found, err := from.Find(ctx, e.objects, at)
	if err != nil {
		return err
	}
	o := &s.origin
	switch lacks := found.Lacks(); {
	case !found.There():
		o.is(volume.Missing, "cloning starts when it is created")
		o.again = untold(at, refusedEvery)
		return nil
	case lacks != "":
		o.is(volume.Unfilled, "%s", lacks)
		o.again = untold(at, snapshotEvery)
		return nil
	}
	o.found, o.size, o.mode = found, found.Size(), found.Mode()
	o.claim, o.snapshot, o.taken = found.Claim, found.Snapshot, found.Content
	o.inherit(found.Labels())
	if found.Claim == nil {
		return nil
	}
	if class := deref(found.Claim.Spec.StorageClassName); class != "" {
		o.class, err = cluster.Get[storagev1.StorageClass](ctx, e.reader, "", class)
	}
	return err
}

// untold is when to look again at what nobody tells us of: snapshots.
func untold(at from.Ref, every time.Duration) time.Duration {
	if at.GroupKind() == from.Snapshot.GroupKind() {
		return every
	}
	return 0
}
