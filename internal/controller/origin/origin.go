// Package origin finds out about what a claim is to be cloned from: how large it is, how it is labelled, and whether its data
// is complete. It follows a VolumeCloneSource to its claim or snapshot.
//
// It only reads, and takes what is not there for unknown: a source may come later, and a cluster need not have the kind.
// What is in another namespace that has not granted it is unknown too.
package origin

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/pkg/claim"
)

const snapshotGroup = "snapshot.storage.k8s.io"

// Snapshot is the kind of a snapshot of a claim, which not every cluster has.
var Snapshot = schema.GroupVersionKind{Group: snapshotGroup, Version: "v1", Kind: "VolumeSnapshot"}

// Reader is the API server itself.
type Reader = client.Reader

// Ref is an object in a namespace.
type Ref struct {
	schema.GroupVersionKind
	types.NamespacedName
}

// Of is what the claim names as its source; false if it names none.
func Of(namespace string, spec *corev1.PersistentVolumeClaimSpec) (Ref, bool) {
	switch {
	case spec.DataSourceRef != nil:
		r := spec.DataSourceRef
		if r.Namespace != nil && *r.Namespace != "" {
			namespace = *r.Namespace
		}
		return ref(r.APIGroup, r.Kind, namespace, r.Name), true
	case spec.DataSource != nil:
		return ref(spec.DataSource.APIGroup, spec.DataSource.Kind, namespace, spec.DataSource.Name), true
	}
	return Ref{}, false
}

// ref knows the versions of the kinds this package reads; of others the version is empty.
func ref(group *string, kind, namespace, name string) Ref {
	r := Ref{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	r.Kind = kind
	if group != nil {
		r.Group = *group
	}
	switch r.Group {
	case corev1.GroupName, snapshotGroup:
		r.Version = "v1"
	case cdiv1.SchemeGroupVersion.Group:
		r.Version = cdiv1.SchemeGroupVersion.Version
	}
	return r
}

// Measure is the claim or snapshot that a claim is to be a copy of; nil if it is to be none, or if its source is not
// there to be measured.
func Measure(ctx context.Context, c Reader, namespace string, spec *corev1.PersistentVolumeClaimSpec) (*claim.Source, error) {
	r, ok := Of(namespace, spec)
	if !ok {
		return nil, nil
	}
	if ok, err := Granted(ctx, c, namespace, r); !ok || err != nil {
		return nil, err
	}
	r, err := follow(ctx, c, r)
	if err != nil {
		return nil, err
	}
	switch r.GroupKind() {
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		var pvc corev1.PersistentVolumeClaim
		if ok, err := read(ctx, c, r, &pvc); !ok || err != nil {
			return nil, err
		}
		return measureClaim(&pvc), nil
	case Snapshot.GroupKind():
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(Snapshot)
		if ok, err := read(ctx, c, r, u); !ok || err != nil {
			return nil, err
		}
		return measureSnapshot(u), nil
	}
	return nil, nil
}

// follow goes from a VolumeCloneSource to its source; others are their own.
func follow(ctx context.Context, c Reader, r Ref) (Ref, error) {
	if r.Kind != cdiv1.VolumeCloneSourceRef || r.Group != cdiv1.SchemeGroupVersion.Group {
		return r, nil
	}
	var s cdiv1.VolumeCloneSource
	if ok, err := read(ctx, c, r, &s); !ok || err != nil {
		return Ref{}, err
	}
	return ref(s.Spec.Source.APIGroup, s.Spec.Source.Kind, r.Namespace, s.Spec.Source.Name), nil
}

// read is false for an object, or a kind, that is not there.
func read(ctx context.Context, c Reader, r Ref, obj client.Object) (bool, error) {
	err := c.Get(ctx, r.NamespacedName, obj)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s %s: %w", r.Kind, r.NamespacedName, err)
	}
	return true, nil
}

// measureClaim is a bound claim as a source; one that is not bound has no size yet.
func measureClaim(pvc *corev1.PersistentVolumeClaim) *claim.Source {
	capacity, ok := pvc.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		return nil
	}
	s := &claim.Source{
		Name:       "PersistentVolumeClaim " + pvc.Namespace + "/" + pvc.Name,
		VolumeMode: corev1.PersistentVolumeFilesystem, Capacity: capacity,
	}
	if pvc.Spec.VolumeMode != nil {
		s.VolumeMode = *pvc.Spec.VolumeMode
	}
	if pvc.Spec.StorageClassName != nil {
		s.Class = *pvc.Spec.StorageClassName
	}
	return s
}

// measureSnapshot is a snapshot as a source; one that is not taken has no size yet.
func measureSnapshot(u *unstructured.Unstructured) *claim.Source {
	size, _, _ := unstructured.NestedString(u.Object, "status", "restoreSize") // absent and malformed are both no size
	capacity, err := resource.ParseQuantity(size)
	if err != nil {
		return nil
	}
	s := &claim.Source{
		Name:       "VolumeSnapshot " + u.GetNamespace() + "/" + u.GetName(),
		VolumeMode: corev1.PersistentVolumeFilesystem, Capacity: capacity,
	}
	if u.GetAnnotations()["cdi.kubevirt.io/storage.import.sourceVolumeMode"] == string(corev1.PersistentVolumeBlock) {
		s.VolumeMode = corev1.PersistentVolumeBlock
	}
	return s
}

// Labels are those of the claim's source and, below it, of what that leads to; the nearer wins. Sources of kinds this
// package does not know have none.
func Labels(ctx context.Context, c Reader, namespace string, spec *corev1.PersistentVolumeClaimSpec) (map[string]string, error) {
	r, ok := Of(namespace, spec)
	if !ok || r.Version == "" {
		return nil, nil
	}
	if ok, err := Granted(ctx, c, namespace, r); !ok || err != nil {
		return nil, err
	}
	out, err := labels(ctx, c, r)
	if err != nil {
		return nil, err
	}
	to, err := follow(ctx, c, r)
	if err != nil || to == r || to.Version == "" {
		return out, err
	}
	below, err := labels(ctx, c, to)
	if err != nil {
		return nil, err
	}
	for k, v := range below {
		if _, ok := out[k]; !ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out, nil
}

// VolumeLabels is Labels for a DataVolume: of the DataSource it names, and of the claim or snapshot it is a copy of.
func VolumeLabels(ctx context.Context, c Reader, namespace string, spec *cdiv1.DataVolumeSpec) (map[string]string, error) {
	in := func(space, kind, group, name string) (map[string]string, error) {
		if space == "" {
			space = namespace
		}
		return labels(ctx, c, ref(&group, kind, space, name))
	}
	switch {
	case spec.SourceRef != nil:
		space := ""
		if spec.SourceRef.Namespace != nil {
			space = *spec.SourceRef.Namespace
		}
		return in(space, spec.SourceRef.Kind, cdiv1.SchemeGroupVersion.Group, spec.SourceRef.Name)
	case spec.Source != nil && spec.Source.PVC != nil:
		return in(spec.Source.PVC.Namespace, "PersistentVolumeClaim", corev1.GroupName, spec.Source.PVC.Name)
	case spec.Source != nil && spec.Source.Snapshot != nil:
		return in(spec.Source.Snapshot.Namespace, Snapshot.Kind, snapshotGroup, spec.Source.Snapshot.Name)
	}
	return nil, nil
}

func labels(ctx context.Context, c Reader, r Ref) (map[string]string, error) {
	u := &unstructured.Unstructured{} // read from the server itself: it is asked once, when a machine starts
	u.SetGroupVersionKind(r.GroupVersionKind)
	if ok, err := read(ctx, c, r, u); !ok || err != nil {
		return nil, err
	}
	return u.GetLabels(), nil
}

// Inherited are those of a source's labels that a copy of it gets too: which instance type and preference suit what is on it. More
// would make the copy look like something that it is not.
func Inherited(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if strings.HasPrefix(key, "instancetype.kubevirt.io/default-") {
			out[key] = value
		}
	}
	return out
}
