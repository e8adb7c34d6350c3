// Package datavolume makes DataVolumes come true: it observes a volume, its claim and its worker, lets
// internal/decide/volume decide, carries the plan out and reports the state.
//
// It does not decide anything itself, and it does not know how bytes are moved or how a claim is completed.
package datavolume

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/metrics"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/state"
)

// Reconciler reconciles DataVolumes.
type Reconciler struct {
	reader   client.Reader // cached
	live     client.Reader // the API server itself, for the few facts that must not be stale
	settings config.Reader
	cluster  *cluster.Writer
	clock    clock.PassiveClock
	image    string // the image workers run
	ask      progressAsker
	tokens   verifier
	// transfers counts what workers came to; nil counts nothing.
	transfers *metrics.Transfers
}

// How soon to look again where nothing in the cluster will tell.
const (
	progressEvery = 2 * time.Second  // clients poll about as often
	refusedEvery  = 30 * time.Second // something out of our sight refused an object
)

// errStale: the cache was behind. The change it had missed brings the volume back by itself.
var errStale = errors.New("the cache is behind the API server")

// Reconcile brings one volume a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v, err := get[cdiv1.DataVolume](ctx, r.reader, req.Namespace, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if v == nil {
		r.cluster.Forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if v.DeletionTimestamp != nil {
		return ctrl.Result{}, r.release(ctx, v)
	}
	s, err := r.observe(ctx, v)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := s.facts()
	plan := volume.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)

	said := s.state(plan.State, facts)
	again := s.again(plan, facts)
	for _, action := range plan.Do {
		err := r.act(ctx, action, s)
		if errors.Is(err, errStale) {
			return ctrl.Result{RequeueAfter: progressEvery}, nil
		}
		if refused, ok := s.refusal(action, err); ok {
			said, again = refused, refusedEvery
			break
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", action, err)
		}
		r.count(action, s)
	}
	if err := r.show(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	err = r.cluster.Report(ctx, v, cluster.Status{
		State: said, Bound: facts.Claim == volume.Bound, Progress: s.percent(said), Restarts: s.restarts(),
	})
	return ctrl.Result{RequeueAfter: again}, err
}

// again is when to look again even if nothing changes in the cluster; zero means never.
func (s *seen) again(p volume.Plan, f volume.Facts) time.Duration {
	switch {
	case state.Of(p.State).Run == state.Moving && f.Worker == volume.Running:
		return progressEvery
	case f.Worker == volume.Pending:
		return startPatience
	case f.Worker == volume.Failed && !f.RetryDue:
		return max(s.nextTry().Sub(s.now), time.Second)
	}
	return s.origin.again
}

// refusal is what to say when the API server will not have an object. It is the user's or the administrator's turn
// then, so it belongs into the status and not only into a log.
func (s *seen) refusal(a volume.Action, err error) (state.State, bool) {
	if err == nil {
		return state.State{}, false
	}
	quota, exceeded := cluster.ExceededQuota(err)
	reason := state.Reason("")
	switch {
	case a == volume.CreateClaim && exceeded:
		reason = state.QuotaExceeded
	case a == volume.CreateClaim && apierrors.IsInvalid(err):
		reason = state.ClaimIncomplete
	case a == volume.StartWorker && (exceeded || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)):
		reason = state.WorkerRefused
	case errors.Is(err, errUnsupported):
		reason = state.Unsupported
	default:
		return state.State{}, false
	}
	said := s.named(state.Of(reason))
	said.Detail = err.Error()
	if exceeded {
		said.Detail = quota
	}
	return said, true
}

// count notes how a worker ended, with the action that records it.
func (r *Reconciler) count(a volume.Action, s *seen) {
	ended := terminated(s.worker)
	if ended == nil || a != volume.RecordData && a != volume.RecordRestart && a != volume.RecordFatal {
		return
	}
	r.transfers.Ended(s.flow().String(), s.report, ended.FinishedAt.Sub(ended.StartedAt.Time))
}
