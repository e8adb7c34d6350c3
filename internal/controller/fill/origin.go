package fill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/cluster"
	from "github.com/berth-vm/berth/internal/controller/origin"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
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
	further := from.Inherited(labels)
	maps.Copy(further, o.labels)
	o.labels = further
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
	if o.size.IsZero() {
		return nil
	}
	src := &claim.Source{Name: name, Capacity: o.size, VolumeMode: corev1.PersistentVolumeFilesystem}
	if o.claim == nil {
		if o.block(false) {
			src.VolumeMode = corev1.PersistentVolumeBlock
		}
		return src
	}
	src.Class = deref(o.claim.Spec.StorageClassName)
	if mode := o.claim.Spec.VolumeMode; mode != nil {
		src.VolumeMode = *mode
	}
	if disk, err := resource.ParseQuantity(o.claim.Annotations[annDiskSize]); err == nil {
		src.Disk = disk
	}
	return src
}

// disk is how large the disk in the origin may be: as it was measured, or anything if it was not. It is 0 if nothing is cloned.
func (o *origin) disk() int64 {
	src := o.request("")
	switch {
	case src == nil:
		return 0
	case !src.Disk.IsZero():
		return src.Disk.Value()
	case src.VolumeMode == corev1.PersistentVolumeBlock:
		return src.Capacity.Value()
	}
	return math.MaxInt64
}

// resolve follows a sourceRef to the claim or snapshot it stands for.
func (e *Engine) resolve(ctx context.Context, s *Seen) error {
	ref := s.order.Spec.SourceRef
	if ref == nil {
		return nil
	}
	namespace := s.order.Namespace
	if ref.Namespace != nil && *ref.Namespace != "" {
		namespace = *ref.Namespace
	}
	name := ref.Name
	for range 2 { // a DataSource may stand for another one, but not further
		s.source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
		ds, err := cluster.Get[cdiv1.DataSource](ctx, e.reader, namespace, name)
		if err != nil {
			return err
		}
		if ds == nil {
			s.origin.is(volume.Missing, "there is no DataSource %s/%s", namespace, name)
			return nil
		}
		s.origin.inherit(ds.Labels)
		switch src := ds.Spec.Source; {
		case src.PVC != nil:
			s.source = &cdiv1.DataVolumeSource{PVC: src.PVC}
			return nil
		case src.Snapshot != nil:
			s.source = &cdiv1.DataVolumeSource{Snapshot: src.Snapshot}
			return nil
		case src.DataSource != nil && src.DataSource.Namespace == namespace:
			name = src.DataSource.Name
		default:
			s.origin.is(volume.Missing, "DataSource %s/%s names no source in its own namespace", namespace, name)
			return nil
		}
	}
	s.origin.is(volume.Missing, "DataSource %s/%s stands for one that stands for another", namespace, ref.Name)
	return nil
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
	namespace, name := s.originName()
	if namespace != s.order.Namespace && !s.order.Allowed {
		if err := e.authorize(ctx, s); errors.Is(err, errForbidden) {
			s.origin.is(volume.Forbidden, "%v", err)
			s.origin.again = refusedEvery // nobody tells us of a right that somebody gets
			return nil
		} else if err != nil {
			return err
		}
	}
	var err error
	if s.source.Snapshot != nil {
		err = e.observeSnapshotSource(ctx, s, namespace, name)
	} else {
		err = e.observeClaimSource(ctx, s, namespace, name)
	}
	return err
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

// observeClaimSource reads the claim to be cloned. Whether it is in use comes later, once it is known how it is cloned.
func (e *Engine) observeClaimSource(ctx context.Context, s *Seen, namespace, name string) error {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, namespace, name)
	if err != nil {
		return err
	}
	o := &s.origin
	if c == nil {
		o.is(volume.Missing, "cloning starts when it is created")
		return nil
	}
	if proof, lacks := from.Complete(c); proof == from.Unproven {
		o.is(volume.Unfilled, "%s", lacks)
		return nil
	}
	o.inherit(c.Labels)
	o.claim, o.size = c, c.Status.Capacity[corev1.ResourceStorage]
	if o.size.IsZero() {
		o.size = c.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if class := deref(c.Spec.StorageClassName); class != "" {
		o.class, err = cluster.Get[storagev1.StorageClass](ctx, e.reader, "", class)
	}
	return err
}

// observeSnapshotSource reads the snapshot to be restored.
func (e *Engine) observeSnapshotSource(ctx context.Context, s *Seen, namespace, name string) error {
	snap, err := volumesnapshot.Read(ctx, e.objects, namespace, name)
	if err != nil {
		return err
	}
	o := &s.origin
	switch {
	case snap == nil:
		o.is(volume.Missing, "cloning starts when it is created")
		o.again = refusedEvery
	case !volumesnapshot.Ready(snap):
		o.is(volume.Unfilled, "it is not ready to use yet")
		o.again = snapshotEvery
	default:
		o.inherit(snap.Labels)
		o.snapshot, o.size = snap, volumesnapshot.Size(snap)
		o.taken, err = volumesnapshot.ContentOf(ctx, e.objects, snap)
		o.mode = volumesnapshot.Mode(snap, o.taken)
	}
	return err
}
