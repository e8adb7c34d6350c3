package cron

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/cron"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// annClass is on a snapshot: the storage class of the claim it was taken of, which is deleted then.
const annClass = "cdi.kubevirt.io/storage.import.storageClass"

// annUsed on the claim of an import says when the managed names began to refer to it; on its snapshot, when that was taken.
const annUsed = "cdi.kubevirt.io/storage.import.lastUseTime"

// annSnapshotClass on a storage profile names the class for snapshots of golden images, if not the profile's own.
const annSnapshotClass = "cdi.kubevirt.io/snapshotClassForDataImportCron"

// stored is the form that the imports are kept in.
type stored struct {
	wanted    bool   // imports are kept as snapshots
	class     string // to take them with
	storage   string // the storage class that says so
	mode      *corev1.PersistentVolumeMode
	labels    map[string]string             // of the import's claim that its snapshot has too: the claim is deleted
	claim     *corev1.PersistentVolumeClaim // of the import; nil: there is none
	snapshots []volumesnapshot.Snapshot
	current   *volumesnapshot.Snapshot // of the version that the source has; nil: there is none
}

// observeStored finds the snapshots and whether there should be any: the storage profile of the import's claim says so.
func (r *Reconciler) observeStored(ctx context.Context, s *seen) error {
	var err error
	s.stored.labels = map[string]string{}
	s.stored.snapshots, err = volumesnapshot.All(ctx, cluster.Reads(r.live), s.cron.Namespace, map[string]string{Label: s.cron.Name})
	if err != nil {
		return err
	}
	if s.digest == "" {
		return nil
	}
	name := importName(s.cron, s.digest)
	for i := range s.stored.snapshots {
		if one := &s.stored.snapshots[i]; one.Name == name && one.DeletionTimestamp == nil {
			s.stored.current, s.stored.storage = one, one.Annotations[annClass]
		}
	}
	return r.observeForm(ctx, s, name)
}

func (r *Reconciler) observeForm(ctx context.Context, s *seen, name string) error {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.cron.Namespace, name)
	if err != nil {
		return err
	}
	if c != nil {
		s.stored.claim, s.stored.labels = c, clonesource.Inherited(c.Labels)
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
	if volumesnapshot.Ready(t.current) {
		return cron.Ready
	}
	return cron.Storing
}

// form returns the form that the imports are in.
func (t stored) form() *cdiv1.DataImportCronSourceFormat {
	if t.wanted {
		return ptr.To(cdiv1.DataImportCronSourceFormatSnapshot)
	}
	return ptr.To(cdiv1.DataImportCronSourceFormatPvc)
}

// takeSnapshot has the import stored as a snapshot of its name.
func (r *Reconciler) takeSnapshot(ctx context.Context, s *seen) error {
	taken := volumesnapshot.New(s.cron.Namespace, s.current.Name, s.stored.class, s.current.Name)
	taken.Labels, taken.OwnerReferences = maps.Clone(s.stored.labels), s.owners()
	maps.Copy(taken.Labels, s.labels())
	taken.Annotations = map[string]string{annClass: s.stored.storage, annUsed: s.now.UTC().Format(time.RFC3339Nano)}
	if s.stored.mode != nil {
		taken.Annotations[volumesnapshot.AnnMode] = string(*s.stored.mode)
	}
	return r.cluster.Create(ctx, taken)
}

// named returns the source that the managed objects should name.
func (s *seen) named() (cdiv1.DataSourceSource, corev1.TypedLocalObjectReference) {
	name := importName(s.cron, s.digest)
	if s.stored.wanted {
		return cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: s.cron.Namespace, Name: name}},
			*volumesnapshot.Source(name)
	}
	// An apply knows no null, so the group of claims is spelt out.
	return cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: s.cron.Namespace, Name: name}},
		corev1.TypedLocalObjectReference{APIGroup: ptr.To(corev1.GroupName), Kind: "PersistentVolumeClaim", Name: name}
}

// switched reports whether both managed names stand for the current import.
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

// switchNames makes the managed names stand for the current import, each in one write. Before, it notes on the import's claim when that was: imports that were used
// longest ago are removed first.
func (r *Reconciler) switchNames(ctx context.Context, s *seen) error {
	if c := s.stored.claim; c != nil && !s.stored.wanted {
		if err := r.cluster.Annotate(ctx, c, annUsed, s.now.UTC().Format(time.RFC3339Nano)); err != nil {
			return err
		}
	}
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

// surplus returns the imports that are too many: those that were used longest ago, and never the one in use; and those that are
// kept in another form.
func (s *seen) surplus() []client.Object {
	volumes, snapshots := s.left(), []client.Object(nil)
	for i := range s.imports {
		volumes = append(volumes, &s.imports[i])
	}
	for i := range s.stored.snapshots {
		snapshots = append(snapshots, &s.stored.snapshots[i])
	}
	s.sortByUse(volumes)
	s.sortByUse(snapshots)
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

// left returns the claims of imports whose DataVolumes are gone: upstream removed them after a while, and people may have. That a claim has the cron's
// label proves nothing, because a clone may have the labels of its source: its name must be that of the version it claims to be.
func (s *seen) left() []client.Object {
	var left []client.Object
	for i := range s.claims {
		c := &s.claims[i]
		digest := c.Annotations[annDigest]
		if metav1.GetControllerOf(c) == nil && digest != "" && c.Name == importName(s.cron, digest) {
			left = append(left, c)
		}
	}
	return left
}

// sortByUse sorts imports by their last use, most recent first.
func (s *seen) sortByUse(imports []client.Object) {
	used := map[string]time.Time{}
	for i := range s.claims {
		if at, err := time.Parse(time.RFC3339, s.claims[i].Annotations[annUsed]); err == nil {
			used[s.claims[i].Name] = at
		}
	}
	when := func(o client.Object) time.Time {
		if at, err := time.Parse(time.RFC3339, o.GetAnnotations()[annUsed]); err == nil {
			return at
		}
		if at, ok := used[o.GetName()]; ok {
			return at
		}
		return o.GetCreationTimestamp().Time
	}
	slices.SortStableFunc(imports, func(a, b client.Object) int { return when(b).Compare(when(a)) })
}

// outdated returns the imports that may be deleted, least recently used first.
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
