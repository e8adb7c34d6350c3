package storage

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// A loop calls a function for every object that changed, one at a time, and again later if it returned an error.
type loop struct {
	what  string
	step  func(ctx context.Context, key string) error
	queue workqueue.TypedRateLimitingInterface[string]
}

func newLoop(what string, step func(context.Context, string) error) *loop {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 15*time.Second)
	return &loop{what: what, step: step, queue: workqueue.NewTypedRateLimitingQueue(limit)}
}

func (l *loop) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		l.queue.ShutDown()
	}()
	for {
		key, ended := l.queue.Get()
		if ended {
			return
		}
		l.one(ctx, key)
	}
}

func (l *loop) one(ctx context.Context, key string) {
	defer l.queue.Done(key)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.step(ctx, key); err != nil {
		klog.ErrorS(err, "will be tried again", l.what, key)
		l.queue.AddRateLimited(key)
		return
	}
	l.queue.Forget(key)
}

func (l *loop) add(obj any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		l.queue.Add(key)
	}
}

// OnAdd, OnUpdate and OnDelete make the loop a handler of an informer's events.
func (l *loop) OnAdd(obj any, _ bool) { l.add(obj) }

// OnUpdate implements cache.ResourceEventHandler.
func (l *loop) OnUpdate(_, obj any) { l.add(obj) }

// OnDelete implements cache.ResourceEventHandler.
func (l *loop) OnDelete(obj any) { l.add(obj) }
