// Package hookpath has our webhooks answer the API server alone. The API server shows no certificate, so what tells it from others is that it
// knows where to ask: in the path of each webhook is a word that is made of a key, which is in a Secret of the installation's namespace, and the
// configurations, which only administrators may read, have these paths. The manifests have none: what applies them again leaves ours alone.
//
// One replica, the leader, makes keys and replaces them; all accept what is made with any of them. A controller of an earlier version
// answers at the plain paths only. While one is there, during an upgrade or after it was taken back, the plain paths are used and accepted.
//
// It does not know what the webhooks check.
package hookpath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/pods"
)

// Secret holds the keys. Deleting it makes a new one, at once.
const Secret = "berth-webhook-keys" //nolint:gosec // G101: the name of a Secret, not a secret

// Label is on the pods of controllers that answer at secret paths.
const Label = "berth.dev/webhook-path"

// component labels all pods of controllers, of every version.
var component = client.MatchingLabels{"app.kubernetes.io/name": "berth", "app.kubernetes.io/component": "controller"}

const (
	// readEvery is how often a replica reads the keys.
	readEvery = 10 * time.Second
	// plainStays is how long plain paths are accepted after the last controller of an earlier version was seen: longer than readEvery, so that there
	// is no gap while one is there, and than the API server needs to hear of the new paths.
	plainStays = 15 * time.Second
)

// Options say which webhooks there are.
type Options struct {
	Namespace            string            // of the installation
	Validating, Mutating []string          // names of the configurations
	Paths                map[string]string // the plain path of each webhook, by its name
	Clock                clock.PassiveClock
}

// Paths keeps the paths of webhooks.
type Paths struct {
	Options
	cached  client.Reader
	live    client.Reader // Secrets are not watched
	writer  *cluster.Writer
	leading <-chan struct{}
	renewed bool // since this replica leads; only Reconcile uses it

	mu         sync.RWMutex
	keys       Keys
	plainUntil time.Time
}

// New returns empty paths for Setup to fill. Its Open can be given to a server at once, and opens no path until then.
func New() *Paths { return &Paths{} }

// Setup keeps the paths as long as the manager runs, on every replica: any of them may answer the API server.
func (p *Paths) Setup(mgr ctrl.Manager, w *cluster.Writer, o Options) error {
	p.Options, p.cached, p.live, p.writer, p.leading = o, mgr.GetClient(), mgr.GetAPIReader(), w, mgr.Elected()
	named := func(names []string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(obj client.Object) bool { return slices.Contains(names, obj.GetName()) })
	}
	everything := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: Secret}}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{everything} })
	start := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(everything)
		return nil
	})
	everywhere := false
	build := ctrl.NewControllerManagedBy(mgr).Named("webhook-paths").
		WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
		WatchesRawSource(start).
		Watches(&admissionregistration.ValidatingWebhookConfiguration{}, all, builder.WithPredicates(named(o.Validating))).
		Watches(&admissionregistration.MutatingWebhookConfiguration{}, all, builder.WithPredicates(named(o.Mutating))).
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(p.isController)))
	if err := build.Complete(p); err != nil {
		return fmt.Errorf("set up the paths of webhooks: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-paths", p.ready); err != nil {
		return fmt.Errorf("set up the paths of webhooks: %w", err)
	}
	return nil
}

// ready is a readiness check: this replica knows the keys, so it can answer.
func (p *Paths) ready(*http.Request) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.keys) == 0 {
		return errors.New("the keys of webhook paths are not known yet")
	}
	return nil
}

// Open returns which webhook is asked at a path, if the caller knows its word.
func (p *Paths) Open(path string) (plain string, ok bool) {
	p.mu.RLock()
	keys, until := p.keys, p.plainUntil
	p.mu.RUnlock()
	if plain, ok := keys.Open(path); ok {
		return plain, true
	}
	if until.IsZero() || p.Clock.Now().After(until) {
		return "", false
	}
	for _, known := range p.Paths {
		if path == known {
			return path, true
		}
	}
	return "", false
}

// Reconcile reads the keys, makes those that are due if this replica leads, and sees that every webhook has its path.
func (p *Paths) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	leads := p.leads()
	keys, err := p.keep(ctx, leads)
	if err != nil {
		return reconcile.Result{}, err
	}
	older, err := p.olderController(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := p.Clock.Now()
	p.mu.Lock()
	p.keys = keys
	if older {
		p.plainUntil = now.Add(plainStays)
	}
	p.mu.Unlock()
	want := func(plain string) string {
		if older {
			return plain
		}
		return keys.Path(plain, now)
	}
	judge := func(hook, present string) (path string, write bool) {
		plain, ours := p.Paths[hook]
		if !ours {
			return "", false
		}
		f := Facts{Path: Foreign, Leads: leads}
		if of, ok := keys.Open(present); ok && of == plain && !older {
			f.Path = Accepted
		}
		if present == want(plain) {
			f.Path = Wanted
		}
		return want(plain), Write(f)
	}
	if err := p.write(ctx, judge); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: readEvery}, nil
}

func (p *Paths) leads() bool {
	select {
	case <-p.leading:
		return true
	default:
		return false
	}
}

// keep returns the keys as they are stored. A leader replaces keys that are due, and those of its predecessor: users may have
// been told the paths while no webhook answered.
func (p *Paths) keep(ctx context.Context, leads bool) (Keys, error) {
	have, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	want := have.Rotate(p.Clock.Now(), leads && !p.renewed)
	if len(have) > 0 && (!leads || maps.EqualFunc(have, want, bytes.Equal)) {
		p.renewed = leads
		return have, nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: Secret}, Data: want}
	if err := p.writer.Apply(ctx, secret); err != nil {
		return nil, err
	}
	p.renewed = leads
	return p.read(ctx) // of two replicas that make the first key, the last wins
}

func (p *Paths) read(ctx context.Context) (Keys, error) {
	var s corev1.Secret
	err := p.live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: Secret}, &s)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the keys of webhook paths: %w", err)
	}
	return s.Data, nil
}

// isController reports whether a pod is one of the controllers that the API server may be led to.
func (p *Paths) isController(obj client.Object) bool {
	for key, value := range component {
		if obj.GetLabels()[key] != value {
			return false
		}
	}
	return obj.GetNamespace() == p.Namespace
}

// olderController reports whether a controller is there that answers at plain paths only. One that is being deleted is not led to
// any more.
func (p *Paths) olderController(ctx context.Context) (bool, error) {
	var all corev1.PodList
	if err := p.cached.List(ctx, &all, client.InNamespace(p.Namespace), component); err != nil {
		return false, fmt.Errorf("list controllers: %w", err)
	}
	return slices.ContainsFunc(all.Items, func(pod corev1.Pod) bool {
		_, knows := pod.Labels[Label]
		return !knows && pod.DeletionTimestamp == nil && !pods.Over(&pod)
	}), nil
}
