package clone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// A snapshot that its driver cannot restore where the clone is wanted is restored beside its own data, to a claim that
// workers read from as they would from any other source, and that goes with them. So is the snapshot of a claim that a pod uses.

// roleRestored is the component label of such a claim.
const roleRestored = "cdi-clone-restored"

func (o *Order) restoredName() string { return "restored-" + string(o.UID) }

// restoredReady reports whether the claim is bound, or will be by the worker that reads from it.
func (c *observer) restoredReady(ctx context.Context, of *corev1.PersistentVolumeClaim) (bool, error) {
	if of == nil || of.DeletionTimestamp != nil {
		return false, nil
	}
	if of.Status.Phase == corev1.ClaimBound {
		return true, nil
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, c.reader, "", ptr.Deref(of.Spec.StorageClassName, ""))
	return claim.Waits(class), err
}

// restoreOrigin makes the claim that a snapshot is restored to. If it is being deleted, the server that uses it keeps it.
func (c *Cloner) restoreOrigin(ctx context.Context, s *Seen) error {
	if s.restored != nil {
		if p := s.server; s.restored.DeletionTimestamp != nil && p != nil && p.DeletionTimestamp == nil {
			return c.cluster.Delete(ctx, p)
		}
		return nil
	}
	class := s.class
	if class == nil {
		class = s.restores
	}
	if class == nil {
		return nil
	}
	if s.acrossSpaces() {
		if err := c.hold(ctx, s, true); err != nil {
			return err
		}
	}
	claim, err := c.restoredClaim(ctx, s, class)
	if err != nil {
		return err
	}
	return c.cluster.Create(ctx, claim)
}

// restoredClaim returns that claim. If its class binds at once the node is chosen here, as for the clone itself.
func (c *Cloner) restoredClaim(ctx context.Context, s *Seen, class *storagev1.StorageClass) (*corev1.PersistentVolumeClaim, error) {
	size := s.found.Size()
	if size.IsZero() {
		size = s.target.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	mode := corev1.PersistentVolumeFilesystem
	if s.block() {
		mode = corev1.PersistentVolumeBlock
	}
	labels := render.Labels(roleRestored)
	labels[render.LabelVolumeUID] = string(s.order.UID)
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.at.Namespace, Name: s.order.restoredName(), Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class.Name, VolumeMode: &mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource:  volumesnapshot.Source(s.readSnapshot()),
		},
	}
	if !s.acrossSpaces() {
		made.OwnerReferences = []metav1.OwnerReference{s.order.Owner}
	}
	if s.home != nil && !claim.Waits(class) {
		in, err := nodeselect.In(ctx, c.reader, s.home)
		if err != nil {
			return nil, err
		}
		if len(in) > 0 {
			made.Annotations = map[string]string{names.SelectedNode: in[0].Name}
		}
	}
	return made, nil
}

// readSnapshot returns the snapshot that is read: the source itself, or the one that was taken of it.
func (s *Seen) readSnapshot() string {
	if s.found.Snapshot != nil {
		return s.found.Snapshot.Name
	}
	return s.order.snapshotName()
}

// reads returns the claim that workers read from: the source, or what a snapshot was restored to.
func (s *Seen) reads() *corev1.PersistentVolumeClaim {
	if s.step.Via {
		return s.restored
	}
	return s.found.Claim
}

// restoreClass returns the class to restore a user's snapshot with: of its driver's classes the clone's own, that of the
// snapshot's claim, the default one or any.
func (c *observer) restoreClass(ctx context.Context, s *Seen) (*storagev1.StorageClass, error) {
	driver := volumesnapshot.Driver(s.found.Content)
	if driver == "" {
		return nil, nil
	}
	if provisioner(s.target.Class) == driver {
		return s.target.Class, nil
	}
	var classes storagev1.StorageClassList
	if err := c.reader.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("list storage classes: %w", err)
	}
	taken, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, c.reader, s.at.Namespace, volumesnapshot.Claim(s.found.Snapshot))
	if err != nil {
		return nil, err
	}
	var found *storagev1.StorageClass
	for i := range classes.Items {
		class := &classes.Items[i]
		switch {
		case provisioner(class) != driver:
		case taken != nil && class.Name == ptr.Deref(taken.Spec.StorageClassName, ""):
			return class, nil
		case found == nil || class.Annotations[claim.DefaultClassAnnotation] == "true":
			found = class
		}
	}
	return found, nil
}
