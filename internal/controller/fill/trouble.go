package fill

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// startPatience is how long a worker may take to start before it is asked why it does not. A pod whose Secret does not
// exist says so nowhere but in an event.
const startPatience = 15 * time.Second

// startTrouble is what keeps a pending worker from starting, as far as the kubelet says; empty if it does not, or if
// there has not been time enough to worry.
func (e *Engine) startTrouble(ctx context.Context, s *Seen) string {
	if s.now.Sub(s.worker.CreationTimestamp.Time) < startPatience {
		return ""
	}
	var events corev1.EventList
	err := e.live.List(ctx, &events, client.InNamespace(s.worker.Namespace), client.MatchingFields{
		"involvedObject.uid": string(s.worker.UID), "type": corev1.EventTypeWarning,
	})
	if err != nil {
		log.FromContext(ctx).V(1).Info("no events", "worker", s.worker.Name, "error", err.Error())
		return ""
	}
	last := corev1.Event{}
	for _, e := range events.Items {
		if !e.LastTimestamp.Before(&last.LastTimestamp) {
			last = e
		}
	}
	return last.Message
}
