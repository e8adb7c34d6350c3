// Package populate fills claims that name a VolumeImportSource, VolumeUploadSource, VolumeCloneSource or DataSource as their data
// source, the way Kubernetes' volume populators do: a prime claim is made and filled in the claim's stead, on the node that
// the scheduler chose for it, and its volume is given to the claim.
//
// The prime is an order for the engine of internal/controller/fill, which DataVolumes are filled by as well; what to do
// with it is decided by internal/decide/populate. This package does not know how bytes are moved.
package populate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/decide/populate"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
)

// Reconciler reconciles claims that name one of our sources.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader // the API server itself
	engine  *fill.Engine
	cluster *cluster.Writer
	clock   clock.PassiveClock
	// grantsWatched: a new ReferenceGrant brings back the claims that wait for it.
	grantsWatched bool
}

// Delays before the next check of something that causes no event.
const (
	staleEvery = time.Second      // the cache was behind
	grantEvery = 10 * time.Second // permissions cannot be watched in a cluster that did not have them at our start, nor claims with backups
)

// Reconcile brings one claim a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	target, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, req.Namespace, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if target == nil {
		r.cluster.ForgetClaim(req.NamespacedName)
		return ctrl.Result{}, r.engine.Sweep(ctx, req.NamespacedName)
	}
	if !ours(target) {
		return ctrl.Result{}, nil
	}
	s, err := r.observe(ctx, target)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := s.facts()
	plan := populate.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)

	status, again := s.status(plan.State), time.Duration(0)
	for _, action := range plan.Do {
		outcome, err := r.act(ctx, action, s)
		switch {
		case errors.Is(err, cluster.ErrStale), outcome.Stale:
			return ctrl.Result{RequeueAfter: staleEvery}, nil
		case err != nil:
			return ctrl.Result{}, fmt.Errorf("%s: %w", action, err)
		}
		if action == populate.FillInPlace {
			outcome.Status.Bound = true
			return ctrl.Result{RequeueAfter: outcome.Again}, r.sayInPlace(ctx, s, outcome.Status)
		}
		if action == populate.Fill && facts.Prime != populate.Full {
			status, again = s.filled(outcome.Status), outcome.Again
		}
	}
	if facts.Source == populate.Forbidden && !r.grantsWatched || facts.Source == populate.Broken && s.source.mounts {
		again = grantEvery
	}
	if s.direct && s.patience > 0 {
		again = s.patience
	}
	if slices.Contains(plan.Do, populate.KeepSilent) {
		return ctrl.Result{}, nil
	}
	s.showPhase(status.State.Phase)
	return ctrl.Result{RequeueAfter: again}, r.cluster.ReportClaim(ctx, target, s.marks, status)
}

// act carries out one action. Each may be repeated.
func (r *Reconciler) act(ctx context.Context, a populate.Action, s *seen) (fill.Outcome, error) {
	var done fill.Outcome
	switch a {
	case populate.Begin:
		s.begin()
		if err := s.noteImport(); err != nil {
			return done, err
		}
		return done, r.cluster.Mark(ctx, s.target, s.marks)
	case populate.Fill:
		if s.filling == nil { // full, and its source is gone: there is nothing more to do for it
			return done, nil
		}
		outcome, err := r.engine.Act(ctx, s.filling)
		s.marks.Finalizers = s.filling.Finalizers()
		return outcome, err
	case populate.Rebind:
		if s.volume == nil || s.volume.Spec.ClaimRef == nil || s.volume.Spec.ClaimRef.UID != s.prime.UID {
			return done, cluster.ErrStale
		}
		return done, r.cluster.Rebind(ctx, s.volume, s.prime.UID, s.target)
	case populate.Record:
		s.record() // written with what is said about it; until then the mark of the volume says the same
		return done, nil
	case populate.DropPrime:
		s.marks.Finalizers = nil
		return done, r.engine.Discard(ctx, s.leftover())
	case populate.Unchoose:
		if node(s.target) == "" {
			return done, nil
		}
		return done, r.cluster.Unannotate(ctx, s.target, names.SelectedNode)
	case populate.LetGo:
		return done, r.engine.Release(ctx, s.leftover())
	case populate.KeepSilent:
		return done, nil
	case populate.BeginInPlace:
		s.beginInPlace()
		if err := s.noteImport(); err != nil {
			return done, err
		}
		return done, r.cluster.Mark(ctx, s.target, s.marks)
	case populate.FillInPlace:
		return r.fillInPlace(ctx, s)
	case populate.StopInPlace:
		return done, r.stopInPlace(ctx, s)
	}
	return done, fmt.Errorf("nobody knows how to %s", a)
}

// begin records on the target what is about to be made for it.
func (s *seen) begin() {
	s.marks.Annotations[annKind] = s.source.kind
	s.marks.Annotations[annPrime] = primeName(s.target)
	if s.source.now != "" {
		s.marks.Annotations[annSource] = s.source.now
	}
	if way := s.wish(); way != "" {
		s.marks.Annotations[annWish] = string(way)
	}
}

// record notes on the target that its data is complete and its own.
func (s *seen) record() {
	delete(s.marks.Annotations, annImport)
	s.marks.Annotations[names.PopulatedFor] = s.target.Name
	s.marks.Annotations[names.PodPhase] = string(corev1.PodSucceeded)
	if _, shown := s.marks.Annotations[names.PodReady]; shown {
		s.marks.Annotations[names.PodReady] = "false"
	}
}

// leftover returns the order to clean up after, with the source it was started with: the target's source may have changed since.
func (s *seen) leftover() fill.Order {
	o := s.order
	o.Kept = s.marks
	if s.source.begun != "" {
		o.Spec.Source = cloneSource(s.source.begun)
	}
	return o
}

// status returns a decided state with what was seen filled in.
func (s *seen) status(reason state.Reason) cluster.Status {
	said := state.Of(reason)
	said.Claim, said.Source = s.target.Name, s.source.describe()
	switch s.targetFact() {
	case populate.Kept:
		said.Detail = "it was populated before"
		if s.target.Spec.VolumeName != "" {
			said.Detail = "it names volume " + s.target.Spec.VolumeName
		}
		if s.primeFact() == populate.Taken || s.primeFact() == populate.Full {
			said.Detail += ", " + s.why()
		}
	case populate.Open, populate.Bound, populate.Lost, populate.Leaving:
		said.Detail = s.why()
	}
	if reason == state.PopulationSkipped && s.doubt != "" {
		said.Detail = s.doubt
	}
	status := cluster.Status{State: said, Bound: s.target.Status.Phase == corev1.ClaimBound, Progress: "N/A"}
	if said.Ready {
		status.Progress = "100.0%"
	}
	return status
}

// why returns the reason to show for a target that is not being filled.
func (s *seen) why() string {
	switch {
	case s.primeFact() == populate.Taken || s.primeFact() == populate.Full:
		return fmt.Sprintf("what was sent for it is kept in PVC %s", s.prime.Name)
	case s.source.fact == populate.Forbidden, s.source.fact == populate.Broken:
		return s.source.why
	case s.class == nil && s.target.Spec.StorageClassName == nil:
		return "it names no storage class and there is no default one"
	case s.class == nil:
		return fmt.Sprintf("there is no storage class %q", *s.target.Spec.StorageClassName)
	}
	return ""
}

// filled returns what filling the prime came to, said of the target.
func (s *seen) filled(status cluster.Status) cluster.Status {
	status.State.Claim = s.target.Name
	status.Bound = false
	return status
}
