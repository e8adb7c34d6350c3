package clonesource

import (
	"context"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// Found is a claim or snapshot that a claim is cloned from.
type Found struct {
	Ref
	Claim    *corev1.PersistentVolumeClaim // nil: there is none, or it is a snapshot
	Snapshot *volumesnapshot.Snapshot      // nil: there is none, or it is a claim
	Content  *volumesnapshot.Content       // of Snapshot; nil: nothing is known of it
}

// Find reads a claim or snapshot. For other kinds it finds nothing.
func Find(ctx context.Context, from Reader, at Ref) (Found, error) {
	f := Found{Ref: at}
	switch at.GroupKind() {
	case Claim.GroupKind():
		c := &corev1.PersistentVolumeClaim{}
		if ok, err := from.Read(ctx, at.Namespace, at.Name, c); !ok || err != nil {
			return f, err
		}
		f.Claim = c
	case Snapshot.GroupKind():
		var err error
		if f.Snapshot, err = volumesnapshot.Read(ctx, from, at.Namespace, at.Name); err != nil || f.Snapshot == nil {
			return f, err
		}
		if f.Content, err = volumesnapshot.ContentOf(ctx, from, f.Snapshot); err != nil {
			return f, err
		}
	}
	return f, nil
}

// There reports whether an object was found.
func (f Found) There() bool { return f.Claim != nil || f.Snapshot != nil }

// Lacks returns why the source cannot be cloned yet; "" if it can.
func (f Found) Lacks() string {
	switch {
	case f.Claim != nil:
		_, lacks := Complete(f.Claim)
		return lacks
	case f.Snapshot == nil:
		return "it does not exist"
	case !volumesnapshot.Ready(f.Snapshot):
		return "it is not ready to use yet"
	}
	return ""
}

// Labels are its own.
func (f Found) Labels() map[string]string {
	switch {
	case f.Claim != nil:
		return f.Claim.Labels
	case f.Snapshot != nil:
		return f.Snapshot.Labels
	}
	return nil
}

// Size returns the size that a copy needs; zero if unknown. The size of a bound claim is that of its volume.
func (f Found) Size() resource.Quantity {
	switch {
	case f.Snapshot != nil:
		return volumesnapshot.Size(f.Snapshot)
	case f.Claim == nil:
		return resource.Quantity{}
	}
	if size, ok := f.Claim.Status.Capacity[corev1.ResourceStorage]; ok || f.Claim.Status.Phase != corev1.ClaimBound {
		return size
	}
	return f.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// Requested returns how large it was asked to be; of a snapshot, how large a copy has to be.
func (f Found) Requested() resource.Quantity {
	if f.Claim != nil {
		return f.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return f.Size()
}

// Mode returns the volume mode of the data; "" if it is unknown, as of a snapshot that was not made in this cluster.
func (f Found) Mode() corev1.PersistentVolumeMode {
	if f.Claim != nil {
		return ptr.Deref(f.Claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	return volumesnapshot.Mode(f.Snapshot, f.Content)
}

// Measure returns the facts that the size of a copy depends on; nil if they are not known yet. Data of unknown mode counts as files.
func (f Found) Measure() *claim.Source {
	size := f.Size()
	if size.IsZero() {
		return nil
	}
	s := &claim.Source{Name: f.Kind + " " + f.NamespacedName.String(), VolumeMode: f.Mode(), Capacity: size}
	if s.VolumeMode == "" {
		s.VolumeMode = corev1.PersistentVolumeFilesystem
	}
	if f.Claim == nil {
		return s
	}
	s.Class = ptr.Deref(f.Claim.Spec.StorageClassName, "")
	s.Requested = f.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if disk, err := resource.ParseQuantity(f.Claim.Annotations[names.DiskSize]); err == nil {
		s.Disk = disk
	}
	return s
}

// Disk returns how large the disk in it may be: as it was measured, or anything if it was not. It is 0 if nothing was found.
func (f Found) Disk() int64 {
	s := f.Measure()
	switch {
	case s == nil:
		return 0
	case !s.Disk.IsZero():
		return s.Disk.Value()
	case s.VolumeMode == corev1.PersistentVolumeBlock:
		return s.Capacity.Value()
	}
	return math.MaxInt64
}

// Home returns where the data can be used; nil if it can be used everywhere, or that is unknown.
func (f Found) Home(ctx context.Context, from Reader) (*corev1.NodeSelector, error) {
	if f.Claim != nil {
		return Home(ctx, from, f.Claim)
	}
	return volumesnapshot.Home(f.Content), nil
}

// Home returns where the volume of a claim can be used; nil: everywhere, or it has none yet.
func Home(ctx context.Context, from Reader, c *corev1.PersistentVolumeClaim) (*corev1.NodeSelector, error) {
	if c.Spec.VolumeName == "" {
		return nil, nil
	}
	var pv corev1.PersistentVolume
	if ok, err := from.Read(ctx, "", c.Spec.VolumeName, &pv); !ok || err != nil || pv.Spec.NodeAffinity == nil || !isFor(&pv, c) {
		return nil, err
	}
	return pv.Spec.NodeAffinity.Required, nil
}

// DriverSource returns the claim or snapshot that the driver of a claim's class fills it from. It is beside the claim: a driver fills
// from nowhere else. Nothing is found for a claim without a source, or with one that we or another populator fill it from.
func DriverSource(ctx context.Context, from Reader, c *corev1.PersistentVolumeClaim) (Found, error) {
	r, ok := Of(c.Namespace, &c.Spec)
	if !ok || r.Namespace != c.Namespace {
		return Found{}, nil
	}
	return Find(ctx, from, r)
}

// isFor reports whether a volume is the claim's, or was reserved for it by an administrator. A claim can name any volume: where
// another user's volume is, and which taints its node has, must not be shown to the claim's author by a worker that follows it
// there.
func isFor(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return false
	}
	return ref.UID != "" && ref.UID == c.UID || ref.UID == "" && ref.Namespace == c.Namespace && ref.Name == c.Name
}

// Measure returns the claim or snapshot that a claim will be a copy of; nil if it is no copy, if its source cannot be measured
// yet, or if its namespace has not granted it.
func Measure(ctx context.Context, from Reader, c *corev1.PersistentVolumeClaim) (*claim.Source, error) {
	r, ok := OfClaim(c)
	if !ok {
		return nil, nil
	}
	end, ok, err := Reachable(ctx, from, c.Namespace, r)
	if !ok || err != nil {
		return nil, err
	}
	return measure(ctx, from, end)
}

// MeasureGranted is Measure for those who read with the rights of the caller.
func MeasureGranted(ctx context.Context, from Reader, r Ref) (*claim.Source, error) {
	r, err := Follow(ctx, from, r)
	if err != nil {
		return nil, err
	}
	return measure(ctx, from, r)
}

func measure(ctx context.Context, from Reader, r Ref) (*claim.Source, error) {
	found, err := Find(ctx, from, r)
	if err != nil {
		return nil, err
	}
	return found.Measure(), nil
}
