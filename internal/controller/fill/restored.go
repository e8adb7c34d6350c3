package fill

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	reach "k8s.io/component-helpers/storage/volume"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// A snapshot that its driver cannot restore where the clone is wanted is restored beside its own data, to a claim that
// workers read from as they would from any other source, and that goes with them. So is the snapshot of a claim that a pod uses.

// roleRestored is the component that such a claim belongs to.
const roleRestored = "cdi-clone-restored"

func (s *Seen) restoredName() string { return "restored-" + string(s.order.UID) }

// readFrom finds out whether what a worker is to read from is there: the claim a snapshot is restored to, and the server if the
// clone is streamed.
func (e *Engine) readFrom(ctx context.Context, s *Seen) error {
	o := &s.origin
	if o.via != "" {
		o.claim = o.restored
		ready, err := e.restoredReady(ctx, o.restored)
		if err != nil {
			return err
		}
		if !ready {
			o.fact, o.again = volume.Restoring, snapshotEvery // it may be in a namespace that we are not told of
			return nil
		}
	}
	if p := o.server; o.strategy == clone.Stream && (p == nil || !podReady(p) || p.Status.PodIP == "" || p.DeletionTimestamp != nil) {
		o.fact = volume.Unready
	}
	return nil
}

// restoredReady: the claim is bound, or will be by the worker that reads from it.
func (e *Engine) restoredReady(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	if c == nil || c.DeletionTimestamp != nil {
		return false, nil
	}
	if c.Status.Phase == corev1.ClaimBound {
		return true, nil
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, e.reader, "", deref(c.Spec.StorageClassName))
	return waits(class), err
}

// restoreOrigin makes the claim that a snapshot is restored to. One that somebody deleted is kept by the server that has it.
func (e *Engine) restoreOrigin(ctx context.Context, s *Seen) error {
	if c := s.origin.restored; c != nil {
		if p := s.origin.server; c.DeletionTimestamp != nil && p != nil && p.DeletionTimestamp == nil {
			return e.cluster.Delete(ctx, p)
		}
		return nil
	}
	class, err := e.restoreClass(ctx, s)
	if err != nil || class == nil {
		return err
	}
	if s.acrossSpaces() {
		if err := e.hold(ctx, s, true); err != nil {
			return err
		}
	}
	c, err := e.restored(ctx, s, class)
	if err != nil {
		return err
	}
	return e.cluster.Create(ctx, c)
}

// restored is that claim. Where its class binds at once nobody but us says on which node, as with the clone itself.
func (e *Engine) restored(ctx context.Context, s *Seen, class *storagev1.StorageClass) (*corev1.PersistentVolumeClaim, error) {
	size := s.origin.size
	if size.IsZero() {
		size = s.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	mode := corev1.PersistentVolumeFilesystem
	if s.origin.block(s.block()) {
		mode = corev1.PersistentVolumeBlock
	}
	labels := render.Labels(roleRestored)
	labels[render.LabelVolumeUID] = string(s.order.UID)
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.serverSpace(), Name: s.restoredName(), Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class.Name, VolumeMode: &mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource:  volumesnapshot.Source(s.origin.via),
		},
	}
	if !s.acrossSpaces() {
		c.OwnerReferences = []metav1.OwnerReference{s.order.Owner}
	}
	if home := s.origin.home; home != nil && !waits(class) {
		nodes, err := e.nodesIn(ctx, home)
		if err != nil {
			return nil, err
		}
		if len(nodes) > 0 {
			c.Annotations = map[string]string{reach.AnnSelectedNode: nodes[0].Name}
		}
	}
	return c, nil
}

// restoreClass is the class to restore a snapshot with: that of the claim that is cloned; of the classes of the driver of a snapshot
// that somebody took the clone's own, that of the claim it was taken of, the default one or any.
func (e *Engine) restoreClass(ctx context.Context, s *Seen) (*storagev1.StorageClass, error) {
	if s.origin.class != nil {
		return s.origin.class, nil
	}
	driver := volumesnapshot.Driver(s.origin.taken)
	if driver == "" {
		return nil, nil
	}
	if provisioner(s.class) == driver {
		return s.class, nil
	}
	var classes storagev1.StorageClassList
	if err := e.reader.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("list storage classes: %w", err)
	}
	taken, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, s.serverSpace(), volumesnapshot.Claim(s.origin.snapshot))
	if err != nil {
		return nil, err
	}
	var found *storagev1.StorageClass
	for i := range classes.Items {
		class := &classes.Items[i]
		switch {
		case provisioner(class) != driver:
		case taken != nil && class.Name == deref(taken.Spec.StorageClassName):
			return class, nil
		case found == nil || class.Annotations[claim.DefaultClassAnnotation] == "true":
			found = class
		}
	}
	return found, nil
}
