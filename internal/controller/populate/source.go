package populate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/populate"
	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
)

// source is the data source that a target names.
type source struct {
	fact            populate.Source
	why             string // of fact
	kind, name      string
	namespace       string
	spec            cdiv1.DataVolumeSpec // what to fill with, without a claim
	end             clonesource.Ref      // what a clone is made of; the zero Ref: the source is no clone, or stands for nothing
	lacks           string               // why a DataSource stands for nothing
	labels          map[string]string    // that the copies of a DataSource inherit from it
	now             string               // what a clone is made of, Kind/namespace/name
	begun           string               // the same when the prime was begun, as the target says: never to be read from
	usesCredentials bool
	mounts          bool                          // what a worker mounts from the namespace of the source
	imported        *cdiv1.VolumeImportSourceSpec // nil: it is no import, or nothing is known of it
}

// describe returns how messages call the source.
func (s *source) describe() string { return fmt.Sprintf("%s %s/%s", s.kind, s.namespace, s.name) }

// ours reports whether a claim names one of our sources.
func ours(c *corev1.PersistentVolumeClaim) bool { return clonesource.PopulatedByUs(c) }

// clones reports whether what the source gives is a copy of a claim or snapshot.
func (s *source) clones() bool {
	return s.kind == cdiv1.VolumeCloneSourceRef || s.kind == cdiv1.DataVolumeDataSource
}

// sourceSpace returns the namespace of what a claim names.
func sourceSpace(c *corev1.PersistentVolumeClaim) string {
	at, _ := clonesource.OfClaim(c)
	return at.Namespace
}

func (r *Reconciler) readSource(ctx context.Context, seen *seen) (source, error) {
	target := seen.target
	ref := target.Spec.DataSourceRef
	s := source{kind: ref.Kind, name: ref.Name, namespace: sourceSpace(target), begun: target.Annotations[annSource]}
	exists, err := r.readSpec(ctx, &s)
	if err != nil {
		return s, err
	}
	begun := seen.prime
	if target.Annotations[names.MayFill] == string(target.UID) {
		begun = target
	}
	if s.kind == cdiv1.VolumeUploadSourceRef && begun != nil {
		// Nothing is read from a missing source, and a worker that was started is not stopped because its source is gone.
		if !exists {
			s.spec = uploaded(cdiv1.DataVolumeContentType(begun.Annotations[claimorder.Content]), nil)
		}
		return s, nil
	}
	if s.kind == cdiv1.VolumeImportSourceRef && !exists && begun != nil && (begun == target || metav1.IsControlledBy(begun, target)) {
		exists = s.recall(target.Annotations[annImport]) // what was begun is completed without its source, as upstream does
	}
	refused, err := r.refusal(ctx, target, &s)
	switch {
	case err != nil:
		return s, err
	case refused != "":
		s.fact, s.why = populate.Forbidden, refused
	case !exists:
		s.fact = populate.Absent
	case s.lacks != "":
		s.fact, s.why = populate.Broken, s.lacks
	case s.forAnother(target):
		s.fact, s.why = populate.Broken, fmt.Sprintf("its stages are for claim %s, which it names as its targetClaim", *s.imported.TargetClaim)
	}
	return s, nil
}

// refusal returns why the target may not be filled from its source; empty: it may. The namespace of the source has to allow it,
// and so has the namespace that a DataSource refers to, because any user can make a DataSource refer to anything.
func (r *Reconciler) refusal(ctx context.Context, target *corev1.PersistentVolumeClaim, s *source) (string, error) {
	const ask = "no ReferenceGrant in namespace %s lets a PersistentVolumeClaim of namespace %s refer to it; ask for one there"
	live := cluster.Reads(r.live)
	if s.namespace != target.Namespace {
		at, _ := clonesource.OfClaim(target)
		granted, err := clonesource.Granted(ctx, live, target.Namespace, at)
		switch {
		case err != nil:
			return "", err
		case !granted && s.clones():
			return fmt.Sprintf(ask+", or for the label %s%s=%s on namespace %s if that is a library of images", s.namespace, target.Namespace,
				names.UsesImages, s.namespace, names.Allowed, target.Namespace), nil
		case !granted:
			return fmt.Sprintf(ask, s.namespace, target.Namespace), nil
		case s.mounts:
			return "a worker mounts what it names, which it can only in its own namespace; make one beside the claim", nil
		case s.usesCredentials:
			return "it needs a Secret or ConfigMap of its own namespace, which a worker in another cannot have; import it there and clone it", nil
		}
	}
	if s.end.Name == "" || s.end.Namespace == s.namespace {
		return "", nil
	}
	granted, err := clonesource.Granted(ctx, live, target.Namespace, s.end)
	if granted || err != nil {
		return "", err
	}
	return fmt.Sprintf("it stands for %s %s, and "+ask, s.end.Kind, s.end.NamespacedName, s.end.Namespace, target.Namespace), nil
}

// readSpec reads what the source is to fill a claim with.
func (r *Reconciler) readSpec(ctx context.Context, s *source) (bool, error) {
	switch s.kind {
	case cdiv1.VolumeImportSourceRef:
		v, err := cluster.Get[cdiv1.VolumeImportSource](ctx, r.reader, s.namespace, s.name)
		if err != nil || v == nil {
			return false, err
		}
		s.imports(&v.Spec)
	case cdiv1.VolumeUploadSourceRef:
		v, err := cluster.Get[cdiv1.VolumeUploadSource](ctx, r.reader, s.namespace, s.name)
		if err != nil || v == nil {
			return false, err
		}
		s.spec = uploaded(v.Spec.ContentType, v.Spec.Preallocation)
	case cdiv1.DataVolumeDataSource:
		return r.readDataSource(ctx, s)
	case accessv1.VolumeBackupSourceKind:
		return r.readBackup(ctx, s)
	default:
		v, err := cluster.Get[cdiv1.VolumeCloneSource](ctx, r.reader, s.namespace, s.name)
		if err != nil || v == nil {
			return false, err
		}
		s.spec = cdiv1.DataVolumeSpec{Preallocation: v.Spec.Preallocation}
		if v.Spec.PriorityClassName != nil {
			s.spec.PriorityClassName = *v.Spec.PriorityClassName
		}
		s.copies(clonesource.OfCloneSource(v))
	}
	return true, nil
}

// copies notes what a claim is a copy of.
func (s *source) copies(at clonesource.Ref) {
	s.end, s.now, s.spec.Source = at, at.Kind+"/"+at.NamespacedName.String(), at.Source()
}

// readDataSource follows a DataSource to its claim or snapshot. It is followed once: the claim is filled from the source that was
// checked here.
func (r *Reconciler) readDataSource(ctx context.Context, s *source) (bool, error) {
	reads := cluster.Reading{Objects: r.reader, Live: r.live}
	var self cdiv1.DataSource
	if there, err := reads.Read(ctx, s.namespace, s.name, &self); !there || err != nil {
		return false, err
	}
	at := clonesource.At(cdiv1.SchemeGroupVersion.WithKind(s.kind), s.namespace, s.name)
	resolved, err := clonesource.ResolveDataSource(ctx, reads, at)
	if err != nil {
		return true, err
	}
	if s.lacks = resolved.Lacks; s.lacks == "" {
		end, _ := clonesource.OfSource(s.namespace, resolved.Source)
		s.copies(end)
		s.labels = resolved.Labels
	}
	return true, nil
}

// readBackup looks for a VolumeBackupSource and what it names. The engine reads it again, for the claim that it fills.
func (r *Reconciler) readBackup(ctx context.Context, s *source) (bool, error) {
	reads := cluster.Reading{Objects: r.reader, Live: r.live}
	b, lacks, err := clonesource.FindBackup(ctx, reads, s.namespace, s.name)
	s.lacks, s.mounts = lacks, true
	s.spec = cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: s.kind, Name: s.name}}
	return b != nil, err
}

// imports notes what a claim is imported from.
func (s *source) imports(spec *cdiv1.VolumeImportSourceSpec) {
	s.imported = spec
	s.spec = cdiv1.DataVolumeSpec{Source: importsource.FromImport(spec.Source), ContentType: spec.ContentType, Preallocation: spec.Preallocation,
		Checkpoints: spec.Checkpoints, FinalCheckpoint: ptr.Deref(spec.FinalCheckpoint, false)}
	_, from := importsource.Of(s.spec.Source)
	s.usesCredentials = from.NeedsSecrets()
}

// forAnother reports whether the import is one in stages, for the one claim that it names.
func (s *source) forAnother(target *corev1.PersistentVolumeClaim) bool {
	i := s.imported
	return i != nil && len(i.Checkpoints) > 0 && i.TargetClaim != nil && *i.TargetClaim != target.Name
}

// recall reads the recorded source of an import whose source object is gone; it returns false if there is no record.
func (s *source) recall(noted string) bool {
	var spec cdiv1.VolumeImportSourceSpec
	if noted == "" || json.Unmarshal([]byte(noted), &spec) != nil || spec.Source == nil {
		return false
	}
	s.imports(&spec)
	return true
}

// noteImport records on the target the source that its import is begun with: the source may be deleted meanwhile.
func (s *seen) noteImport() error {
	if s.source.imported == nil {
		return nil
	}
	text, err := json.Marshal(s.source.imported)
	if err != nil {
		return fmt.Errorf("note what %s is imported from: %w", s.target.Name, err)
	}
	s.marks.Annotations[annImport] = string(text)
	return nil
}

// uploaded returns what to fill a claim with that takes an upload.
func uploaded(content cdiv1.DataVolumeContentType, preallocate *bool) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, ContentType: content, Preallocation: preallocate,
	}
}

// cloneSource returns the source that Kind/namespace/name stands for.
func cloneSource(name string) *cdiv1.DataVolumeSource {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) != 3 {
		return &cdiv1.DataVolumeSource{}
	}
	kind := clonesource.Claim
	if parts[0] == clonesource.Snapshot.Kind {
		kind = clonesource.Snapshot
	}
	return clonesource.At(kind, parts[1], parts[2]).Source()
}
