// Package fill makes a claim and fills it: it observes the claim, its source and its worker, lets internal/decide/volume decide,
// carries the plan out, and reports the result. DataVolumes and claims with a data source of their own are filled by the same
// engine.
//
// It decides nothing itself. It does not know how bytes are copied or how a claim is completed, and does not use a claim that is full.
package fill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	cloning "github.com/berth-vm/berth/internal/controller/clone"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/metrics"
	"github.com/berth-vm/berth/internal/controller/uploadkeys"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/state"
)

// Engine fills claims.
type Engine struct {
	reader   client.Reader // cached
	live     client.Reader // the API server itself, for the few facts that must not be stale
	objects  cluster.Reading
	clones   *cloning.Cloner
	settings config.Reader
	cluster  *cluster.Writer
	clock    clock.PassiveClock
	image    string // the image workers run
	ask      worker.Asker
	uploads  *uploadkeys.Keys
	records  *diskaccess.Records
	// transfers counts the results of workers; nil counts nothing.
	transfers *metrics.Transfers
}

// Delays before the next check of something that causes no event.
const (
	progressEvery = 2 * time.Second  // clients poll about as often
	refusedEvery  = 30 * time.Second // something out of our sight refused an object
)

// Parts has the dependencies of an engine.
type Parts struct {
	Reader   client.Reader // cached
	Live     client.Reader // the API server itself
	Writer   *cluster.Writer
	Clock    clock.PassiveClock
	Image    string               // that workers run
	Tokens   clonesource.Verifier // of proofs that clones across namespaces were allowed
	Uploads  uploadkeys.Issuer    // of certificates of upload workers
	Ask      worker.Asker
	Counting *metrics.Transfers // nil counts nothing
	// Records are the access records of disks; nil: only those of this engine.
	Records *diskaccess.Records
}

// New puts an engine together.
func New(p Parts) *Engine {
	if p.Records == nil {
		p.Records = diskaccess.New(p.Reader, p.Live, p.Writer)
	}
	return &Engine{
		reader: p.Reader, live: p.Live, objects: cluster.Reading{Objects: p.Reader, Live: p.Live},
		settings: config.NewReader(p.Reader), cluster: p.Writer, clock: p.Clock, image: p.Image, ask: p.Ask, transfers: p.Counting,
		records: p.Records,
		uploads: uploadkeys.New(p.Uploads, p.Writer),
		clones: cloning.New(cloning.Parts{
			Reader: p.Reader, Live: p.Live, Writer: p.Writer, Clock: p.Clock, Image: p.Image, Tokens: p.Tokens,
			Records: p.Records,
		}),
	}
}

// Shared has the dependencies that exist once for the whole installation.
type Shared struct {
	Clones  clonesource.Verifier // of proofs that clones across namespaces were allowed
	Uploads uploadkeys.Issuer    // of certificates of upload workers
	Records *diskaccess.Records
}

// Setup returns the engine of mgr's cluster; what it counts is shown by a registry.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, image string, shared Shared, counts prometheus.Registerer) (*Engine, error) {
	transfers, err := metrics.NewTransfers(counts)
	if err != nil {
		return nil, fmt.Errorf("register metrics of transfers: %w", err)
	}
	if err := counts.Register(metrics.Now{Reader: mgr.GetClient()}); err != nil {
		return nil, fmt.Errorf("register metrics of volumes: %w", err)
	}
	err = mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.PersistentVolume{}, cacheindex.VolumeIndex, cacheindex.VolumeKeys)
	if err != nil {
		return nil, fmt.Errorf("index volumes by their claims: %w", err)
	}
	return New(Parts{
		Reader: mgr.GetClient(), Live: mgr.GetAPIReader(), Writer: writer, Clock: clock.RealClock{}, Image: image,
		Tokens: shared.Clones, Uploads: shared.Uploads, Records: shared.Records, Ask: worker.AskOverHTTP(), Counting: transfers,
	}), nil
}

// Outcome is the result of a step.
type Outcome struct {
	Status cluster.Status
	// Again is when to check again if no event comes before; zero means never.
	Again time.Duration
	// Stale: there is nothing to report, because the observed objects are out of date: another writer changed it, or this step made
	// the claim, and the claim's own event triggers the next step.
	Stale bool
}

// Act decides on what was observed and carries the plan out.
func (e *Engine) Act(ctx context.Context, s *Seen) (Outcome, error) {
	facts := s.Facts()
	plan := volume.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)

	said := message{s}.ofPopulator(message{s}.state(plan.State, facts), facts)
	again := s.again(plan, facts)
	for _, action := range plan.Do {
		err := e.act(ctx, action, s)
		if errors.Is(err, cluster.ErrStale) {
			return Outcome{Again: progressEvery, Stale: true}, nil
		}
		if refused, ok := s.refusal(action, err); ok {
			said, again = refused, refusedEvery
			break
		}
		if err != nil {
			return Outcome{}, fmt.Errorf("%s: %w", action, err)
		}
		e.count(action, s)
		if action == volume.CreateClaim {
			return Outcome{Again: progressEvery, Stale: true}, nil // what is said of it now is wrong by the time it is written
		}
	}
	if err := e.show(ctx, s); err != nil {
		return Outcome{}, err
	}
	return Outcome{Again: again, Status: cluster.Status{
		State: said, Bound: facts.Claim == volume.Bound, Progress: message{s}.percent(said), Restarts: s.restarts(),
	}}, nil
}

// again returns when to check again if no event comes before; zero means never.
func (s *Seen) again(p volume.Plan, f volume.Facts) time.Duration {
	switch {
	case state.Of(p.State).Run == state.Moving && f.Worker == volume.Running:
		return progressEvery
	case f.Worker == volume.Pending:
		return worker.Patience
	case f.Worker == volume.Failed && !f.RetryDue:
		return max(s.nextTry().Sub(s.now), time.Second)
	}
	return s.clone.Again()
}

// refusal returns what to say when the API server will not have an object. It is the user's or the administrator's turn then, so
// it belongs into the status and not only into a log.
func (s *Seen) refusal(a volume.Action, err error) (state.State, bool) {
	if err == nil {
		return state.State{}, false
	}
	quota, exceeded := cluster.ExceededQuota(err)
	claims := a == volume.CreateClaim || a == volume.RestoreOrigin
	reason := state.Reason("")
	switch {
	case claims && exceeded:
		reason = state.QuotaExceeded
	case claims && (apierrors.IsInvalid(err) || errors.Is(err, cluster.ErrSourceDropped)):
		reason = state.ClaimIncomplete
	case a == volume.StartWorker && (exceeded || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, cluster.ErrTaken)):
		reason = state.WorkerRefused
	case errors.Is(err, errUnsupported):
		reason = state.Unsupported
	default:
		return state.State{}, false
	}
	said := message{s}.named(state.Of(reason))
	said.Detail = err.Error()
	if exceeded {
		said.Detail = quota
		said = said.OverQuota()
	}
	return said, true
}

// count notes how a worker ended, with the action that records it.
func (e *Engine) count(a volume.Action, s *Seen) {
	ended := pods.Terminated(s.worker)
	if ended == nil || a != volume.RecordData && a != volume.RecordStage && a != volume.RecordRestart && a != volume.RecordFatal {
		return
	}
	e.transfers.Ended(s.flow().String(), s.report, ended.FinishedAt.Sub(ended.StartedAt.Time))
}
