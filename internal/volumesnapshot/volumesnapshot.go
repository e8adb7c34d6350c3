// Package volumesnapshot reads and makes VolumeSnapshots of Kubernetes, and chooses the class to take one with. Their API is an
// add-on; in a cluster without it there simply are none.
//
// It writes nothing and does not know what a snapshot is for.
package volumesnapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// The objects.
type (
	// Snapshot is a VolumeSnapshot: the request for one.
	Snapshot = snapshotv1.VolumeSnapshot
	// Content is a VolumeSnapshotContent: what the storage has.
	Content = snapshotv1.VolumeSnapshotContent
	// Class is a VolumeSnapshotClass: how it is taken.
	Class = snapshotv1.VolumeSnapshotClass
	// List is a list of snapshots.
	List = snapshotv1.VolumeSnapshotList
	// ClassList is a list of classes.
	ClassList = snapshotv1.VolumeSnapshotClassList
)

// Group and Kind are how a claim names a snapshot as its source.
const (
	Group = snapshotv1.GroupName
	Kind  = "VolumeSnapshot"
)

// GroupVersion is the version of the objects.
var GroupVersion = snapshotv1.SchemeGroupVersion

// AddToScheme makes the objects known.
func AddToScheme(s *runtime.Scheme) error {
	if err := snapshotv1.AddToScheme(s); err != nil {
		return fmt.Errorf("register the snapshot API: %w", err)
	}
	return nil
}

// Annotations and labels of others.
const (
	annDefault = "snapshot.storage.kubernetes.io/is-default-class"
	// labelNode on a content says on which node a snapshot of a node's own storage is.
	labelNode = "snapshot.storage.kubernetes.io/managed-by"
	// AnnMode on a snapshot is the volume mode of the claim it was taken of, in the words of CDI.
	AnnMode = "cdi.kubevirt.io/storage.import.sourceVolumeMode"
)

// Reader reads a cluster. A kind that is not installed is empty.
type Reader interface {
	// Read reads one object; false means that there is none.
	Read(ctx context.Context, namespace, name string, into runtime.Object) (bool, error)
	// ReadAll reads the objects of a namespace, or of all for "", that have the labels.
	ReadAll(ctx context.Context, namespace string, labels map[string]string, into runtime.Object) error
}

// Read reads a snapshot; nil means that there is none.
func Read(ctx context.Context, from Reader, namespace, name string) (*Snapshot, error) {
	s := &Snapshot{}
	if ok, err := from.Read(ctx, namespace, name, s); !ok || err != nil {
		return nil, err
	}
	return s, nil
}

// All returns the snapshots of a namespace that have the labels.
func All(ctx context.Context, from Reader, namespace string, labels map[string]string) ([]Snapshot, error) {
	var all List
	if err := from.ReadAll(ctx, namespace, labels, &all); err != nil {
		return nil, err
	}
	return all.Items, nil
}

// ContentOf reads the VolumeSnapshotContent of a snapshot; nil if there is none yet.
func ContentOf(ctx context.Context, from Reader, s *Snapshot) (*Content, error) {
	if s.Status == nil || ptr.Deref(s.Status.BoundVolumeSnapshotContentName, "") == "" {
		return nil, nil
	}
	c := &Content{}
	if ok, err := from.Read(ctx, "", *s.Status.BoundVolumeSnapshotContentName, c); !ok || err != nil {
		return nil, err
	}
	return c, nil
}

// ClassOf returns the name of the class to take snapshots of a storage class's volumes with: the one its StorageProfile says,
// else the default one of the driver, else the first by name. Empty means that there is none.
func ClassOf(ctx context.Context, from Reader, storage *storagev1.StorageClass) (string, error) {
	if storage == nil {
		return "", nil
	}
	var profile cdiv1.StorageProfile
	if _, err := from.Read(ctx, "", storage.Name, &profile); err != nil {
		return "", err
	}
	var all ClassList
	if err := from.ReadAll(ctx, "", nil, &all); err != nil {
		return "", err
	}
	return Choose(all.Items, strings.TrimSpace(storage.Provisioner), ptr.Deref(profile.Status.SnapshotClass, "")), nil
}

// Choose returns the name of the class to take snapshots of a driver's volumes with; empty if there is none of the driver.
func Choose(classes []Class, driver, preferred string) string {
	classes = slices.DeleteFunc(slices.Clone(classes), func(c Class) bool { return c.Driver != driver })
	if len(classes) == 0 {
		return ""
	}
	rank := func(c Class) int {
		switch {
		case c.Name == preferred:
			return 0
		case c.Annotations[annDefault] == "true":
			return 1
		}
		return 2
	}
	return slices.MinFunc(classes, func(a, b Class) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	}).Name
}

// New returns a snapshot to be taken of a claim beside it.
func New(namespace, name, class, claim string) *Snapshot {
	return &Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &class, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim},
		},
	}
}

// Source returns how a claim beside a snapshot says that it is restored from it.
func Source(name string) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: ptr.To(Group), Kind: Kind, Name: name}
}

// Ready reports whether a snapshot can be restored.
func Ready(s *Snapshot) bool { return s.Status != nil && ptr.Deref(s.Status.ReadyToUse, false) }

// Size returns the least size of a volume that the snapshot can be restored to; zero if it is not known yet.
func Size(s *Snapshot) resource.Quantity {
	if s.Status == nil || s.Status.RestoreSize == nil {
		return resource.Quantity{}
	}
	return *s.Status.RestoreSize
}

// Cut returns when the data was frozen; nil: it is not yet.
func Cut(s *Snapshot) *metav1.Time {
	if s.Status == nil {
		return nil
	}
	return s.Status.CreationTime
}

// Trouble returns what the storage says about a snapshot that does not come about; it tries again by itself.
func Trouble(s *Snapshot) string {
	if s.Status == nil || s.Status.Error == nil {
		return ""
	}
	return ptr.Deref(s.Status.Error.Message, "")
}

// Claim returns the name of the claim that a snapshot was taken of; empty if it was made of a content.
func Claim(s *Snapshot) string { return ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "") }

// Mode returns the volume mode of the data, as the storage or the snapshot's author recorded it; "" if neither did. Either
// argument may be nil.
func Mode(s *Snapshot, c *Content) corev1.PersistentVolumeMode {
	if c != nil && ptr.Deref(c.Spec.SourceVolumeMode, "") != "" {
		return *c.Spec.SourceVolumeMode
	}
	if s != nil && s.Annotations[AnnMode] == string(corev1.PersistentVolumeBlock) {
		return corev1.PersistentVolumeBlock
	}
	if s != nil && s.Annotations[AnnMode] == string(corev1.PersistentVolumeFilesystem) {
		return corev1.PersistentVolumeFilesystem
	}
	return ""
}

// Driver returns the one that took the snapshot; "" if none.
func Driver(c *Content) string {
	if c == nil {
		return ""
	}
	return c.Spec.Driver
}

// Home returns where the data can be used; nil if everywhere, or unknown.
func Home(c *Content) *corev1.NodeSelector {
	if c == nil || c.Labels[labelNode] == "" {
		return nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{c.Labels[labelNode]},
	}}}}}
}
