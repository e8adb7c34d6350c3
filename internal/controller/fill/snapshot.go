package fill

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
)

// The snapshot API is an add-on with types of its own; a few fields of it do not deserve a dependency.
var snapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

const annDefaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

// readSnapshot reads a VolumeSnapshot; nil means that there is none, or no snapshot API at all.
func (e *Engine) readSnapshot(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	return e.readKind(ctx, "VolumeSnapshot", namespace, name)
}

func (e *Engine) readKind(ctx context.Context, kind, namespace, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(snapshotGroup.WithKind(kind))
	err := e.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, u)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", kind, namespace, name, err)
	}
	return u, nil
}

func snapshotReady(u *unstructured.Unstructured) bool {
	ready, _, err := unstructured.NestedBool(u.Object, "status", "readyToUse")
	return err == nil && ready
}

func restoreSize(u *unstructured.Unstructured) resource.Quantity {
	text, _, _ := unstructured.NestedString(u.Object, "status", "restoreSize")
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// labelSnapshotNode is how the snapshot controller says on which node a snapshot of a node's own storage is.
const labelSnapshotNode = "snapshot.storage.kubernetes.io/managed-by"

// content is what is known of the data of a snapshot. Each may be empty: nobody says.
type content struct {
	driver string // that took it
	mode   corev1.PersistentVolumeMode
	node   string // that has it
}

func (e *Engine) contentOf(ctx context.Context, snap *unstructured.Unstructured) (content, error) {
	name, _, _ := unstructured.NestedString(snap.Object, "status", "boundVolumeSnapshotContentName")
	if name == "" {
		return content{}, nil
	}
	u, err := e.readKind(ctx, "VolumeSnapshotContent", "", name)
	if err != nil || u == nil {
		return content{}, err
	}
	driver, _, _ := unstructured.NestedString(u.Object, "spec", "driver")
	mode, _, _ := unstructured.NestedString(u.Object, "spec", "sourceVolumeMode")
	return content{driver: driver, mode: corev1.PersistentVolumeMode(mode), node: u.GetLabels()[labelSnapshotNode]}, nil
}

// block: the data is that of a device; otherwise is for data of which nobody says.
func (c content) block(otherwise bool) bool {
	if c.mode == "" {
		return otherwise
	}
	return c.mode == corev1.PersistentVolumeBlock
}

// home is where the data can be used; nil: everywhere, or nobody says.
func (c content) home() *corev1.NodeSelector {
	if c.node == "" {
		return nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{c.node},
	}}}}}
}

// snapshotClass is the class to take snapshots of a storage class's volumes with: the one its profile prefers, the default one, or
// any of the driver.
func (e *Engine) snapshotClass(ctx context.Context, class *storagev1.StorageClass) (string, error) {
	if class == nil {
		return "", nil
	}
	profile, err := cluster.Get[cdiv1.StorageProfile](ctx, e.reader, "", class.Name)
	if err != nil {
		return "", err
	}
	preferred := ""
	if profile != nil {
		preferred = deref(profile.Status.SnapshotClass)
	}
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(snapshotGroup.WithKind("VolumeSnapshotClassList"))
	err = e.live.List(ctx, all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("list snapshot classes: %w", err)
	}
	found := ""
	for _, c := range all.Items {
		of, _, _ := unstructured.NestedString(c.Object, "driver")
		switch {
		case of != provisioner(class):
		case c.GetName() == preferred:
			return preferred, nil
		case found == "" || c.GetAnnotations()[annDefaultSnapshotClass] == "true":
			found = c.GetName()
		}
	}
	return found, nil
}

// snapshotName is the name of the snapshot that a clone is made through: the volume's UID says whose it is.
func (s *Seen) snapshotName() string { return "clone-" + string(s.order.UID) }

// prepareSnapshot makes the claim to be created one that is restored from a snapshot, as soon as that is ready.
func (e *Engine) prepareSnapshot(ctx context.Context, s *Seen) error {
	o := &s.origin
	name := s.snapshotName()
	if o.claim != nil {
		taken, err := e.readSnapshot(ctx, s.order.Namespace, name)
		if err != nil {
			return err
		}
		if taken == nil || !snapshotReady(taken) {
			o.fact, o.again = volume.Preparing, snapshotEvery
			return nil
		}
		o.snapshot = taken
	} else {
		name = o.snapshot.GetName()
	}
	s.wanted.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotGroup.Group), Kind: "VolumeSnapshot", Name: name}
	return nil
}

// freeze has a snapshot taken of a source that a pod uses, if its class can, to be read from in its stead. A snapshot that was begun
// with is gone on with, whatever the pod does meanwhile.
func (e *Engine) freeze(ctx context.Context, s *Seen, user string) error {
	o, class := &s.origin, ""
	if s.claim != nil && (s.claimFact() == volume.Bound || s.claimFact() == volume.Waiting) {
		var err error
		if class, err = e.snapshotClass(ctx, o.class); err != nil {
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
	taken, err := e.readSnapshot(ctx, s.serverSpace(), s.snapshotName())
	if err != nil || taken == nil && o.restored == nil && user == "" {
		return err
	}
	o.via, o.why = s.snapshotName(), o.why+"; the source was in use, so a snapshot of it is read"
	o.taken.mode = corev1.PersistentVolumeFilesystem
	if isBlock(o.claim.Spec.VolumeMode) {
		o.taken.mode = corev1.PersistentVolumeBlock
	}
	if o.restored == nil && (taken == nil || !snapshotReady(taken)) {
		o.fact, o.again = volume.Preparing, snapshotEvery
	}
	return nil
}

// takeSnapshot asks for a snapshot of the source. It belongs to the volume and is removed when the clone is complete.
func (e *Engine) takeSnapshot(ctx context.Context, s *Seen) error {
	class, err := e.snapshotClass(ctx, s.origin.class)
	if err != nil {
		return err
	}
	if s.acrossSpaces() {
		if err := e.hold(ctx, s, true); err != nil {
			return err
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"volumeSnapshotClassName": class,
		"source":                  map[string]any{"persistentVolumeClaimName": s.origin.claim.Name},
	}}}
	u.SetGroupVersionKind(snapshotGroup.WithKind("VolumeSnapshot"))
	u.SetNamespace(s.serverSpace())
	u.SetName(s.snapshotName())
	u.SetLabels(render.Labels("cdi-smart-clone"))
	if !s.acrossSpaces() {
		u.SetOwnerReferences([]metav1.OwnerReference{s.order.Owner})
	}
	return e.cluster.Create(ctx, client.Object(u))
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
	taken, err := e.readSnapshot(ctx, s.serverSpace(), s.snapshotName())
	if err != nil || taken == nil || taken.GetDeletionTimestamp() != nil {
		return err
	}
	return e.cluster.Delete(ctx, taken)
}
