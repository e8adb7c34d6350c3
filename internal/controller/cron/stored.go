package cron

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/origin"
	"github.com/berth-vm/berth/internal/decide/cron"
)

// annClass is on a snapshot: the storage class of the claim it was taken of, which is deleted then.
const annClass = "cdi.kubevirt.io/storage.import.storageClass"

// annMode is on a snapshot: the volume mode of that claim, in the words of CDI.
const annMode = "cdi.kubevirt.io/storage.import.sourceVolumeMode"

// annSnapshotClass is on a storage profile: what to take snapshots of golden images with, if not with the profile's own class.
const annSnapshotClass = "cdi.kubevirt.io/snapshotClassForDataImportCron"

// stored is the form that the imports are kept in.
type stored struct {
	wanted    bool   // imports are to be snapshots
	class     string // to take them with
	storage   string // the storage class that says so
	mode      *corev1.PersistentVolumeMode
	snapshots []unstructured.Unstructured // newest first
	current   *unstructured.Unstructured  // of the version that the source has; nil: there is none
}

// observeStored finds the snapshots and whether there should be any: the storage profile of the import's claim says so.
func (r *Reconciler) observeStored(ctx context.Context, s *seen) error {
	all := &unstructured.UnstructuredList{}
	kind := origin.Snapshot
	kind.Kind += "List"
	all.SetGroupVersionKind(kind)
	err := r.live.List(ctx, all, client.InNamespace(s.cron.Namespace), client.MatchingLabels{Label: s.cron.Name})
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil // a cluster without snapshots
	case err != nil:
		return fmt.Errorf("list snapshots of %s/%s: %w", s.cron.Namespace, s.cron.Name, err)
	}
	s.stored.snapshots = all.Items
	slices.SortStableFunc(s.stored.snapshots, func(a, b unstructured.Unstructured) int {
		return b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time)
	})
	if s.digest == "" {
		return nil
	}
	name := importName(s.cron, s.digest)
	for i := range s.stored.snapshots {
		if one := &s.stored.snapshots[i]; one.GetName() == name && one.GetDeletionTimestamp() == nil {
			s.stored.current, s.stored.storage = one, one.GetAnnotations()[annClass]
		}
	}
	return r.observeForm(ctx, s, name)
}

func (r *Reconciler) observeForm(ctx context.Context, s *seen, name string) error {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.cron.Namespace, name)
	if err != nil {
		return err
	}
	if c != nil && c.Spec.StorageClassName != nil {
		s.stored.storage, s.stored.mode = *c.Spec.StorageClassName, c.Spec.VolumeMode
	}
	if s.stored.storage == "" {
		return nil
	}
	p, err := cluster.Get[cdiv1.StorageProfile](ctx, r.reader, "", s.stored.storage)
	if err != nil || p == nil {
		return err
	}
	s.stored.class = p.Annotations[annSnapshotClass]
	if s.stored.class == "" && p.Status.SnapshotClass != nil {
		s.stored.class = *p.Status.SnapshotClass
	}
	form := p.Status.DataImportCronSourceFormat
	// Storage whose snapshots have no class is left to claims: an image that can be used is better than a form.
	s.stored.wanted = form != nil && *form == cdiv1.DataImportCronSourceFormatSnapshot && s.stored.class != ""
	return nil
}

func (t stored) fact() cron.Import {
	if ready, _, _ := unstructured.NestedBool(t.current.Object, "status", "readyToUse"); ready {
		return cron.Ready
	}
	return cron.Storing
}

// form is the form that the imports are in.
func (t stored) form() *cdiv1.DataImportCronSourceFormat {
	if t.wanted {
		return ptr.To(cdiv1.DataImportCronSourceFormatSnapshot)
	}
	return ptr.To(cdiv1.DataImportCronSourceFormatPvc)
}

// takeSnapshot has the import stored as a snapshot of its name.
func (r *Reconciler) takeSnapshot(ctx context.Context, s *seen) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"volumeSnapshotClassName": s.stored.class,
		"source":                  map[string]any{"persistentVolumeClaimName": s.current.Name},
	}}}
	u.SetGroupVersionKind(origin.Snapshot)
	u.SetNamespace(s.cron.Namespace)
	u.SetName(s.current.Name)
	u.SetLabels(s.labels())
	u.SetOwnerReferences(s.owners())
	notes := map[string]string{annClass: s.stored.storage}
	if s.stored.mode != nil {
		notes[annMode] = string(*s.stored.mode)
	}
	u.SetAnnotations(notes)
	return r.cluster.Create(ctx, u)
}

// named is what the managed names are to stand for.
func (s *seen) named() (cdiv1.DataSourceSource, corev1.TypedLocalObjectReference) {
	name := importName(s.cron, s.digest)
	if s.stored.wanted {
		return cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: s.cron.Namespace, Name: name}},
			corev1.TypedLocalObjectReference{APIGroup: ptr.To(origin.Snapshot.Group), Kind: origin.Snapshot.Kind, Name: name}
	}
	// An apply knows no null, so the group of claims is spelt out.
	return cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: s.cron.Namespace, Name: name}},
		corev1.TypedLocalObjectReference{APIGroup: ptr.To(corev1.GroupName), Kind: "PersistentVolumeClaim", Name: name}
}

// switched: both managed names stand for the current import.
func (s *seen) switched() bool {
	if s.digest == "" || s.dataSource == nil || s.cloneFrom == nil {
		return false
	}
	source, clone := s.named()
	is := s.cloneFrom.Spec.Source
	return same(source.PVC, s.dataSource.Spec.Source.PVC) && same(source.Snapshot, s.dataSource.Spec.Source.Snapshot) &&
		is.Kind == clone.Kind && is.Name == clone.Name
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// switchNames makes the managed names stand for the current import, each in one write.
func (r *Reconciler) switchNames(ctx context.Context, s *seen) error {
	meta := metav1.ObjectMeta{
		Namespace: s.cron.Namespace, Name: s.cron.Spec.ManagedDataSource, Labels: s.labels(), OwnerReferences: s.owners(),
	}
	source, clone := s.named()
	err := r.cluster.ApplyAs(ctx, fieldOwner, &cdiv1.VolumeCloneSource{ObjectMeta: meta, Spec: cdiv1.VolumeCloneSourceSpec{Source: clone}})
	if err != nil {
		return err
	}
	return r.cluster.ApplyAs(ctx, fieldOwner, &cdiv1.DataSource{ObjectMeta: meta, Spec: cdiv1.DataSourceSpec{Source: source}})
}

// surplus are the imports that are too many: the oldest, and never the one in use; and those that are kept in another form.
func (s *seen) surplus() []client.Object {
	var volumes, snapshots []client.Object
	for i := range s.imports {
		volumes = append(volumes, &s.imports[i])
	}
	for i := range s.stored.snapshots {
		snapshots = append(snapshots, &s.stored.snapshots[i])
	}
	many := append(s.outdated(volumes), s.outdated(snapshots)...)
	// Of the current import only one form is in use.
	if s.stored.wanted && s.current != nil {
		many = append(many, s.current)
	}
	if !s.stored.wanted && s.stored.current != nil {
		many = append(many, s.stored.current)
	}
	return slices.DeleteFunc(many, func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })
}

// outdated are those of imports, newest first, that nobody wants to keep.
func (s *seen) outdated(imports []client.Object) []client.Object {
	if gc := s.cron.Spec.GarbageCollect; gc != nil && *gc == cdiv1.DataImportCronGarbageCollectNever {
		return nil
	}
	keep := keepByDefault
	if n := s.cron.Spec.ImportsToKeep; n != nil {
		keep = int(*n)
	}
	keep = max(keep, 1)
	var many []client.Object
	kept := 0
	for _, one := range imports {
		if s.digest != "" && one.GetName() == importName(s.cron, s.digest) {
			continue
		}
		if kept++; kept >= keep {
			many = append(many, one)
		}
	}
	return many
}
