// Package clonesource is the one reader of what a claim is filled or cloned from: which object that is in the end, how large it is
// and in which mode, where its data can be used, how it is labelled, whether its data is complete, and whether another
// namespace has granted it. It follows a VolumeCloneSource and a DataSource to their claim or snapshot.
//
// It only reads, and takes what is not there for unknown: a source may come later, and a cluster need not have the kind.
// What is in another namespace that has not granted it is unknown too. It decides nothing, and does not know who asks.
package clonesource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Reader reads a cluster. A kind that is not installed is empty.
type Reader = volumesnapshot.Reader

// The kinds that a claim is cloned from.
var (
	Claim    = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	Snapshot = volumesnapshot.GroupVersion.WithKind(volumesnapshot.Kind)
)

// Ref is an object in a namespace.
type Ref struct {
	schema.GroupVersionKind
	types.NamespacedName
}

// At returns a claim or snapshot.
func At(kind schema.GroupVersionKind, namespace, name string) Ref {
	return Ref{GroupVersionKind: kind, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Of returns what the claim names as its source; false if it names none.
func Of(namespace string, spec *corev1.PersistentVolumeClaimSpec) (Ref, bool) {
	switch {
	case spec.DataSourceRef != nil:
		r := spec.DataSourceRef
		return ref(r.APIGroup, r.Kind, orIn(r.Namespace, namespace), r.Name), true
	case spec.DataSource != nil:
		return ref(spec.DataSource.APIGroup, spec.DataSource.Kind, namespace, spec.DataSource.Name), true
	}
	return Ref{}, false
}

// OfSource returns the claim or snapshot that a volume's source names; false if it is no clone. One without a namespace is beside
// the volume.
func OfSource(namespace string, s *cdiv1.DataVolumeSource) (Ref, bool) {
	switch {
	case s == nil:
	case s.PVC != nil:
		return At(Claim, orIn(&s.PVC.Namespace, namespace), s.PVC.Name), true
	case s.Snapshot != nil:
		return At(Snapshot, orIn(&s.Snapshot.Namespace, namespace), s.Snapshot.Name), true
	}
	return Ref{}, false
}

// Source returns a claim or snapshot as a volume names it.
func (r Ref) Source() *cdiv1.DataVolumeSource {
	if r.GroupKind() == Snapshot.GroupKind() {
		return &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: r.Namespace, Name: r.Name}}
	}
	return &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: r.Namespace, Name: r.Name}}
}

func orIn(said *string, namespace string) string {
	if n := ptr.Deref(said, ""); n != "" {
		return n
	}
	return namespace
}

// ref knows the versions of the kinds this package reads; of others the version is empty.
func ref(group *string, kind, namespace, name string) Ref {
	r := At(schema.GroupVersionKind{Group: ptr.Deref(group, ""), Kind: kind}, namespace, name)
	switch r.Group {
	case corev1.GroupName, volumesnapshot.Group:
		r.Version = "v1"
	case cdiv1.SchemeGroupVersion.Group:
		r.Version = cdiv1.SchemeGroupVersion.Version
	case BackupSource.Group:
		r.Version = BackupSource.Version
	}
	return r
}

// Follow resolves a VolumeCloneSource or a DataSource to its claim or snapshot; other references are returned unchanged. The zero
// Ref means that the object does not exist, or refers to nothing. A VolumeCloneSource refers to its own namespace; a DataSource
// may refer to any namespace, which has to permit it: Reachable does both.
func Follow(ctx context.Context, from Reader, r Ref) (Ref, error) {
	if r.Group != cdiv1.SchemeGroupVersion.Group {
		return r, nil
	}
	switch r.Kind {
	case cdiv1.VolumeCloneSourceRef:
		var s cdiv1.VolumeCloneSource
		if ok, err := from.Read(ctx, r.Namespace, r.Name, &s); !ok || err != nil {
			return Ref{}, err
		}
		return OfCloneSource(&s), nil
	case cdiv1.DataVolumeDataSource:
		resolved, err := ResolveDataSource(ctx, from, r)
		if err != nil || resolved.Lacks != "" {
			return Ref{}, err
		}
		at, _ := OfSource(r.Namespace, resolved.Source)
		return at, nil
	}
	return r, nil
}

// Reachable is Follow for a claim of a namespace: false if the source, or what it stands for, is in a namespace that has not granted it to
// claims of this one.
func Reachable(ctx context.Context, live Reader, namespace string, r Ref) (Ref, bool, error) {
	if ok, err := Granted(ctx, live, namespace, r); !ok || err != nil {
		return Ref{}, false, err
	}
	end, err := Follow(ctx, live, r)
	if err != nil || end.Namespace == r.Namespace || end.Name == "" {
		return end, err == nil, err
	}
	ok, err := Granted(ctx, live, namespace, end)
	return end, ok, err
}

// OfCloneSource returns the claim or snapshot that a VolumeCloneSource names.
func OfCloneSource(s *cdiv1.VolumeCloneSource) Ref {
	return ref(s.Spec.Source.APIGroup, s.Spec.Source.Kind, s.Namespace, s.Spec.Source.Name)
}
