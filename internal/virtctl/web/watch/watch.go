// Package watch keeps the objects that the page shows up to date, by watches that are made with the rights of one person. What the
// person may not read is left out, and named. It does not know what is shown.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/web/view"
)

// Store has the objects of one person.
type Store struct {
	client *kube.Client
	now    func() time.Time
	done   <-chan struct{} // closed when no page is open any more
	kinds  map[string]cache.SharedIndexInformer
	pace   *pace

	mu       sync.Mutex
	missing  []string // kinds the person may not read
	lost     error    // why the cluster cannot be reached at the moment
	watchers map[chan struct{}]bool
	probing  bool
	measured map[string]view.Measure
	looked   chan struct{} // a page was opened
}

// Start begins to watch all objects that the user may read: in all namespaces or, if that is not allowed, in the client's. It ends
// with ctx. Ready waits for the first lists.
func Start(ctx context.Context, c *kube.Client) (*Store, error) {
	s := &Store{
		client: c, now: time.Now, done: ctx.Done(), kinds: map[string]cache.SharedIndexInformer{}, pace: newPace(), watchers: map[chan struct{}]bool{},
		looked: make(chan struct{}, 1),
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	var first error
	for _, k := range watched {
		all.Go(func() {
			scope, ok, err := s.scope(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				first = err
			case !ok:
				s.missing = append(s.missing, k.resource)
			default:
				informer, err := s.informer(k, scope)
				if err != nil {
					first = err
					return
				}
				s.kinds[k.resource] = informer
			}
		})
	}
	all.Wait()
	if first != nil {
		return nil, first
	}
	for _, informer := range s.kinds {
		go informer.Run(ctx.Done())
	}
	go func() {
		if s.Ready(ctx) == nil {
			s.measure(ctx)
		}
	}()
	return s, nil
}

// scope returns the namespace in which the person may watch a kind; empty: all. Not ok: in none, or the cluster has no such kind.
func (s *Store) scope(ctx context.Context, k kind) (namespace string, ok bool, err error) {
	if _, err := s.client.Core.Discovery().ServerResourcesForGroupVersion(k.group.String()); apierrors.IsNotFound(err) {
		return "", false, nil
	} else if err != nil {
		return "", false, fmt.Errorf("ask the cluster for its kinds: %w", err)
	}
	may, err := s.may(ctx, k, "")
	if err != nil || may || k.cluster {
		return "", may, err
	}
	may, err = s.may(ctx, k, s.client.Namespace)
	return s.client.Namespace, may, err
}

func (s *Store) may(ctx context.Context, k kind, namespace string) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		review := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: k.group.Group, Resource: k.resource,
		}}}
		said, err := s.client.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("ask the cluster what may be read: %w", err)
		}
		if !said.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

func (s *Store) informer(k kind, namespace string) (cache.SharedIndexInformer, error) {
	client, err := restClient(s.client.Config, k.group)
	if err != nil {
		return nil, err
	}
	list := cache.NewListWatchFromClient(client, k.resource, namespace, fields.Everything())
	informer := cache.NewSharedIndexInformer(list, k.example, 0, cache.Indexers{})
	if err := informer.SetTransform(slim); err != nil {
		return nil, fmt.Errorf("watch %s: %w", k.resource, err)
	}
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { s.failed(err) }); err != nil {
		return nil, fmt.Errorf("watch %s: %w", k.resource, err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { s.pace.note(o, s.now()); s.changed() },
		UpdateFunc: func(was, is any) {
			if resent(was, is) {
				return
			}
			s.pace.note(is, s.now())
			s.changed()
		},
		DeleteFunc: func(any) { s.changed() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", k.resource, err)
	}
	return informer, nil
}

// resent reports whether the object is the one that was there.
func resent(was, is any) bool {
	a, errA := meta.Accessor(was)
	b, errB := meta.Accessor(is)
	return errA == nil && errB == nil && a.GetResourceVersion() == b.GetResourceVersion()
}

// restClient reads objects of a group straight into their types.
func restClient(config *rest.Config, group schema.GroupVersion) (rest.Interface, error) {
	own := rest.CopyConfig(config)
	own.GroupVersion = &group
	own.APIPath = "/apis"
	if group.Group == "" {
		own.APIPath = "/api"
	}
	if !known.IsGroupRegistered(group.Group) {
		return nil, fmt.Errorf("group %s is not known here", group)
	}
	own.NegotiatedSerializer = codecs.WithoutConversion()
	own.QPS = -1
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return client, nil
}

var (
	known  = newScheme()
	codecs = serializer.NewCodecFactory(known)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range schemes {
		if err := add(s); err != nil {
			panic(err) // the kinds are compiled in
		}
	}
	return s
}

// Ready waits until the first lists have arrived.
func (s *Store) Ready(ctx context.Context) error {
	var synced []cache.InformerSynced
	for _, informer := range s.kinds {
		synced = append(synced, informer.HasSynced)
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	return errors.Join(s.Lost(), context.Cause(ctx))
}

// Missing returns the kinds that the person may not read, or that the cluster does not have.
func (s *Store) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.missing...)
}

// Measured returns the use of pools.
func (s *Store) Measured() map[string]view.Measure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.measured // never changed, but replaced
}

// Lost returns why the cluster cannot be reached at the moment; nil: it can.
func (s *Store) Lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// failed records that a watch broke. The watch restarts by itself; meanwhile the cluster is probed.
func (s *Store) failed(err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // how a watch ends
	}
	s.mu.Lock()
	s.lost = err
	begin := !s.probing
	s.probing = true
	s.mu.Unlock()
	s.changed()
	if begin {
		go s.probe()
	}
}

// probeEvery is how often the cluster is probed while it does not answer.
const probeEvery = time.Second

func (s *Store) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*probeEvery)
		err := s.client.Core.Discovery().RESTClient().Get().AbsPath("/api").Do(ctx).Error()
		cancel()
		s.mu.Lock()
		s.lost, s.probing = err, err != nil
		s.mu.Unlock()
		s.changed()
		if err == nil {
			return
		}
	}
}

// Watch returns a channel of changes; it ends when end is called. Several changes may be reported as one.
func (s *Store) Watch() (changes <-chan struct{}, end func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[c] = true
	if len(s.watchers) == 1 {
		select {
		case s.looked <- struct{}{}:
		default:
		}
	}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, c)
	}
}

func (s *Store) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.watchers {
		select {
		case c <- struct{}{}:
		default: // it is told already
		}
	}
}
