package populate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/decide/populate"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/pkg/claim"
)

// seen is the part of the cluster that one target depends on, read once.
type seen struct {
	target  *corev1.PersistentVolumeClaim
	class   *storagev1.StorageClass // nil: none, or one that does not exist
	source  source
	prime   *corev1.PersistentVolumeClaim // nil: there is none
	volume  *corev1.PersistentVolume      // the target's, or else the prime's; nil: there is none
	marks   cluster.Marks                 // what we own of the target's metadata
	order   fill.Order                    // of the prime
	filling *fill.Seen                    // how far that is; nil: it is not begun, or no longer to be looked at
	upload  *corev1.Pod                   // the worker that takes an upload into the prime; nil: there is none

	direct   bool          // the class binds the target without looking at its source
	patience time.Duration // how long that is still believed of it; 0: for ever
	contents populate.Contents
	doubt    string     // why a bound target is not known to be empty
	itself   *fill.Seen // how far the filling of the target itself is; nil: it is not begun, or there is nothing to fill it from
}

// observe reads everything a decision about a target depends on.
func (r *Reconciler) observe(ctx context.Context, target *corev1.PersistentVolumeClaim) (*seen, error) {
	s := &seen{target: target}
	var err error
	if name := target.Spec.StorageClassName; name != nil && *name != "" {
		if s.class, err = cluster.Get[storagev1.StorageClass](ctx, r.reader, "", *name); err != nil {
			return nil, err
		}
	}
	if s.prime, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, target.Namespace, primeName(target)); err != nil {
		return nil, err
	}
	if err := r.observeVolume(ctx, s); err != nil {
		return nil, err
	}
	if s.source, err = r.readSource(ctx, s); err != nil {
		return nil, err
	}
	if s.prime != nil && s.source.kind == cdiv1.VolumeUploadSourceRef {
		s.upload, err = cluster.Get[corev1.Pod](ctx, r.reader, target.Namespace, render.WorkerName(render.RoleUpload, s.prime.Name))
		if err != nil {
			return nil, err
		}
	}
	s.marks = marksOf(s)
	s.order = s.orderPrime()
	if err := r.observeDirect(ctx, s); err != nil {
		return nil, err
	}
	if err := r.observeContents(ctx, s); err != nil {
		return nil, err
	}
	if s.direct {
		return s, nil
	}
	if s.targetFact() != populate.Open || s.source.fact != populate.Found || s.placeFact() != populate.Chosen && s.prime == nil {
		return s, nil
	}
	if s.prime == nil || s.prime.DeletionTimestamp == nil && !s.given() {
		s.filling, err = r.engine.Observe(ctx, s.order)
	}
	return s, err
}

func (r *Reconciler) observeVolume(ctx context.Context, s *seen) error {
	name := s.target.Spec.VolumeName
	if name == "" && s.prime != nil {
		name = s.prime.Spec.VolumeName
	}
	if name == "" {
		return nil
	}
	var err error
	s.volume, err = cluster.Get[corev1.PersistentVolume](ctx, r.reader, "", name)
	return err
}

// given reports whether the volume was filled for the target and is reserved for it, or bound to it.
func (s *seen) given() bool {
	return s.volume != nil && s.volume.Spec.ClaimRef != nil && s.volume.Spec.ClaimRef.UID == s.target.UID &&
		s.volume.Annotations[cluster.AnnFilledFor] == string(s.target.UID)
}

func (s *seen) facts() populate.Facts {
	return populate.Facts{
		Target: s.targetFact(), Prime: s.primeFact(), Source: s.source.fact, Place: s.placeFact(),
		Marked: s.given(), Recorded: s.target.Annotations[names.PopulatedFor] != "",
		Direct: s.direct, Contents: s.contents,
	}
}

func (s *seen) targetFact() populate.Target {
	switch {
	case s.target.DeletionTimestamp != nil:
		return populate.Leaving
	case s.target.Status.Phase == corev1.ClaimBound:
		return populate.Bound
	case s.target.Status.Phase == corev1.ClaimLost:
		return populate.Lost
	case s.target.Spec.VolumeName != "", s.target.Annotations[names.PopulatedFor] != "":
		return populate.Kept
	}
	return populate.Open
}

// waits reports whether the class provisions when a pod needs the claim, on that pod's node.
func (s *seen) waits() bool { return claim.Waits(s.class) }

// immediate reports whether the target is filled before any pod uses it, on any node.
func (s *seen) immediate() bool {
	_, asked := s.target.Annotations[names.Immediate]
	return asked
}

// placeFact returns the one home of WaitForFirstConsumer of populated claims.
func (s *seen) placeFact() populate.Place {
	switch {
	case s.class == nil:
		return populate.Classless
	case s.waits() && node(s.target) == "" && !s.immediate():
		return populate.Unchosen
	}
	return populate.Chosen
}

func node(c *corev1.PersistentVolumeClaim) string { return c.Annotations[names.SelectedNode] }

func (s *seen) primeFact() populate.Prime {
	switch p := s.prime; {
	case s.given() && s.target.Status.Phase != corev1.ClaimBound:
		return populate.Given
	case p == nil:
		return populate.NoPrime
	case p.DeletionTimestamp != nil:
		return populate.Going
	case s.full():
		return populate.Full
	case s.waits() && p.Spec.VolumeName == "" && node(p) == "" && !s.immediate():
		return populate.Refused // its provisioner took the choice back: that is how it says no
	case s.taken():
		return populate.Taken
	case s.misplaced(), s.replaced():
		return populate.Misplaced
	}
	return populate.Filling
}

// misplaced reports whether the scheduler has chosen another node since. Of a class that binds at once it chooses none: what is
// written there is the provisioner's, for each claim as it likes.
func (s *seen) misplaced() bool {
	return s.waits() && node(s.target) != "" && node(s.prime) != "" && node(s.prime) != node(s.target)
}

// taken reports whether a worker has acknowledged an upload into the prime, or may do so at any moment.
func (s *seen) taken() bool {
	p := s.upload
	return p != nil && metav1.IsControlledBy(p, s.target) &&
		(p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded)
}

// full reports whether the prime's data is complete and no worker has it any more. The record on the prime counts, even if the
// source was changed or deleted.
func (s *seen) full() bool {
	if s.filling == nil {
		proof, _ := clonesource.Complete(s.prime)
		return proof == clonesource.Transferred && metav1.IsControlledBy(s.prime, s.target)
	}
	f := s.filling.Facts()
	ended := f.Worker == volume.NoWorker || f.Worker == volume.Retained
	return f.Claim == volume.Bound && f.Data == volume.Present && ended
}

// replaced reports whether the source refers to another object than when the prime was begun. An incomplete prime is begun again,
// so that no disk is made from two sources.
func (s *seen) replaced() bool {
	return s.source.fact == populate.Found && s.source.begun != "" && s.source.begun != s.source.now
}
