package populate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/populate"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// Populators are an agreement with CSI's external provisioner, which leaves claims alone that name a source it does not know. Static volumes
// and other provisioners look at no source: they bind the claim, and it is empty. Such a claim is filled itself, after it is bound, as
// that of a DataVolume is; but only if it is empty for certain.

// honourEvery is how long a provisioner without a CSIDriver has to bind a claim before it is assumed to leave that to the populator.
const honourEvery = time.Minute

// observeDirect finds out whether the target's class binds it without looking at its source. Only CSI drivers are known to look, and they have a
// CSIDriver object as a rule; one that has none and has not bound the claim for a while does look.
func (r *Reconciler) observeDirect(ctx context.Context, s *seen) error {
	if s.targetFact() != populate.Open || s.class == nil || s.prime != nil || s.waits() && node(s.target) == "" && s.immediate() {
		return nil
	}
	if s.direct = claim.Static(s.class); s.direct {
		return r.noteReserved(ctx, s)
	}
	if s.class.Annotations[names.Populators] == "true" {
		return nil
	}
	driver, err := cluster.Get[storagev1.CSIDriver](ctx, r.reader, "", s.class.Provisioner)
	if err != nil || driver != nil {
		return err
	}
	s.direct = true
	if s.placeFact() != populate.Chosen {
		return nil
	}
	since, err := r.chosenAt(ctx, s.target)
	if err != nil {
		return err
	}
	s.patience = since.Add(honourEvery).Sub(r.clock.Now())
	s.direct = s.patience > 0
	return nil
}

// chosenAt returns when a node was chosen for the claim, or when it was made. The cache does not have who wrote what.
func (r *Reconciler) chosenAt(ctx context.Context, c *corev1.PersistentVolumeClaim) (time.Time, error) {
	now, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, c.Namespace, c.Name)
	if err != nil || now == nil {
		return c.CreationTimestamp.Time, err
	}
	at := now.CreationTimestamp.Time
	for _, f := range now.ManagedFields {
		if f.Time != nil && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), names.SelectedNode) && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at, nil
}

// noteReserved records, on a target that is not bound yet, the volumes that are reserved for it. Once it is bound they cannot be
// told from volumes that were free.
func (r *Reconciler) noteReserved(ctx context.Context, s *seen) error {
	if _, noted := s.target.Annotations[names.VolumeList]; noted {
		return nil
	}
	list, err := cluster.ReservedFor(ctx, r.reader, s.target)
	s.marks.Annotations[names.VolumeList] = list
	return err
}

// observeContents reads the content of a target's volume that another controller bound, and the progress of its fill.
func (r *Reconciler) observeContents(ctx context.Context, s *seen) error {
	if s.targetFact() != populate.Bound || s.target.Annotations[names.PopulatedFor] != "" {
		return nil
	}
	switch s.target.Annotations[names.MayFill] {
	case string(s.target.UID), names.Filled:
		s.contents = populate.Begun
		if s.source.fact != populate.Found {
			return nil
		}
		var err error
		s.itself, err = r.engine.Observe(ctx, s.orderItself())
		if err == nil && ended(s.itself) && !slices.Contains(s.target.Finalizers, finalizer) {
			s.contents = populate.Unknown // complete: what is left is to record it
		}
		return err
	}
	if s.given() {
		return nil
	}
	if s.doubt = s.notEmpty(); s.doubt != "" {
		return nil
	}
	var err error
	if s.doubt, err = r.stranger(ctx, s.target); err == nil && s.doubt == "" {
		s.contents = populate.Empty
	}
	return err
}

// ended reports whether all data is on the claim and no worker has it any more.
func ended(s *fill.Seen) bool {
	f := s.Facts()
	return f.Claim == volume.Bound && (f.Data == volume.Present || f.Data == volume.Kept) &&
		(f.Worker == volume.NoWorker || f.Worker == volume.Retained)
}

// notEmpty returns why the volume of a bound target may hold data; empty: it was made for the target, or was free for any claim
// like it.
func (s *seen) notEmpty() string {
	v, c := s.volume, s.target
	switch {
	case c.Annotations[names.PodPhase] == string(corev1.PodSucceeded):
		return "it is recorded on it that a transfer ended"
	case v == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID || c.UID == "":
		return fmt.Sprintf("volume %s does not say that it is the claim's", c.Spec.VolumeName)
	case strings.Contains(v.Name, string(c.UID)):
		return "" // as provisioners call what they make for a claim
	case v.Annotations[names.BoundByKube] != "yes" || c.Annotations[names.BoundByKube] != "yes":
		return fmt.Sprintf("somebody said that it is to have volume %s", v.Name)
	}
	var reserved []string
	if json.Unmarshal([]byte(c.Annotations[names.VolumeList]), &reserved) != nil {
		return fmt.Sprintf("it was bound to volume %s before it was known whether that was reserved for it", v.Name)
	}
	if slices.Contains(reserved, v.Name) {
		return fmt.Sprintf("volume %s was reserved for it", v.Name)
	}
	return ""
}

// stranger returns a sentence about a user's pod that has the claim, or had it; "" if there is none. Launchers do not use a claim
// before it is filled, and a worker that fills the claim is owned by it.
func (r *Reconciler) stranger(ctx context.Context, c *corev1.PersistentVolumeClaim) (string, error) {
	var all corev1.PodList
	if err := r.reader.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingFields{cacheindex.PodClaim: c.Name}); err != nil {
		return "", fmt.Errorf("list the pods that use claim %s: %w", c.Name, err)
	}
	for i := range all.Items {
		p := &all.Items[i]
		owner := metav1.GetControllerOf(p)
		machine := owner != nil && owner.Kind == "VirtualMachineInstance" && strings.HasPrefix(owner.APIVersion, kubevirt.GroupVersion.Group+"/")
		if !machine && !metav1.IsControlledBy(p, c) {
			return fmt.Sprintf("pod %s uses it, or did", p.Name), nil
		}
	}
	return "", nil
}

// orderItself returns the order to fill the target itself.
func (s *seen) orderItself() fill.Order {
	spec := s.source.spec
	spec.PVC = &s.target.Spec
	o := fill.OfClaim(s.target, spec, s.marks)
	o.Finalizer, o.Allowed, o.CloneType = finalizer, s.source.fact == populate.Found, clone.Copy
	return o
}

// beginInPlace notes on the target that it is empty and is filled itself. What was said of it before is not the error of a try.
func (s *seen) beginInPlace() {
	for _, key := range append([]string{annPrime, annPhase}, shownKeys...) { // of a prime that was begun
		delete(s.marks.Annotations, key)
	}
	s.marks.Annotations[annKind] = s.source.kind
	s.marks.Annotations[names.ContentType] = string(cmp.Or(s.source.spec.ContentType, cdiv1.DataVolumeKubeVirt))
	if s.source.clones() {
		s.marks.Annotations[names.CloneType] = string(clone.Copy)
	}
	s.marks.Annotations[names.MayFill] = string(s.target.UID)
	if s.source.now != "" {
		s.marks.Annotations[annSource] = s.source.now
	}
}

// fillInPlace takes the next step, and keeps what the engine has written on the target.
func (r *Reconciler) fillInPlace(ctx context.Context, s *seen) (fill.Outcome, error) {
	if s.itself == nil {
		return fill.Outcome{Stale: true}, nil // it was begun in this step: the next one sees it
	}
	outcome, err := r.engine.Act(ctx, s.itself)
	s.marks = s.itself.Marks()
	return outcome, err
}

// stopInPlace removes the worker that fills the target, and what it has in other namespaces.
func (r *Reconciler) stopInPlace(ctx context.Context, s *seen) error {
	o := s.orderItself()
	if s.source.begun != "" {
		o.Spec.Source = cloneSource(s.source.begun)
	}
	s.marks.Finalizers = nil
	return r.engine.Discard(ctx, o)
}

// sayInPlace writes the status of a target that is filled directly, without a prime claim. Its last error is in its annotations
// already, where clients look for it.
func (r *Reconciler) sayInPlace(ctx context.Context, s *seen, status cluster.Status) error {
	reason, progress := string(status.State.Reason), string(status.Progress)
	s.marks.Annotations[cluster.AnnState], s.marks.Annotations[cluster.AnnProgress] = reason, progress
	old := s.target.Annotations
	if old[cluster.AnnState] == reason && old[cluster.AnnProgress] == progress {
		return nil
	}
	if err := r.cluster.Mark(ctx, s.target, s.marks); err != nil {
		return err
	}
	if old[cluster.AnnState] != reason {
		r.cluster.Tell(s.target, status.State)
	}
	return nil
}
