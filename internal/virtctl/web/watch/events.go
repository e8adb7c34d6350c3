package watch

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Events watches the events of a namespace until ctx ends: they are many, and only a machine's own page shows them. What is returned
// lists them as they are; there are none for a person who may not read them.
func Events(ctx context.Context, c *kube.Client, namespace string, s *Store) func() []*corev1.Event {
	client, err := restClient(c.Config, corev1.SchemeGroupVersion)
	if err != nil {
		return func() []*corev1.Event { return nil }
	}
	list := cache.NewListWatchFromClient(client, "events", namespace, fields.Everything())
	informer := cache.NewSharedIndexInformer(list, &corev1.Event{}, 0, cache.Indexers{})
	_ = informer.SetTransform(slim) // it has not started
	_ = informer.SetWatchErrorHandler(func(*cache.Reflector, error) {})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.changed() }, UpdateFunc: func(any, any) { s.changed() }, DeleteFunc: func(any) { s.changed() },
	})
	go informer.Run(ctx.Done())
	return func() []*corev1.Event {
		var out []*corev1.Event
		for _, e := range informer.GetStore().List() {
			if event, ok := e.(*corev1.Event); ok {
				out = append(out, event)
			}
		}
		return out
	}
}
