package fill

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/index"
	"github.com/berth-vm/berth/internal/render"
)

// userOf names a pod that may be writing to a clone's source, or none. Our own workers only read it.
func (e *Engine) userOf(ctx context.Context, s *Seen) (string, error) {
	source := s.origin.claim
	if source == nil {
		return "", nil
	}
	var pods corev1.PodList
	users := client.MatchingFields{index.PodClaim: source.Name}
	if err := e.reader.List(ctx, &pods, client.InNamespace(source.Namespace), users); err != nil {
		return "", fmt.Errorf("list pods that use %s/%s: %w", source.Namespace, source.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !writes(pod, source.Name) || pod.Labels[render.LabelApp] == render.App {
			continue
		}
		if may, err := e.mayRun(ctx, s, pod); may || err != nil {
			return pod.Namespace + "/" + pod.Name, err
		}
	}
	return "", nil
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Ended holds when a pod lets its claims go.
func Ended() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !over(e.ObjectOld.(*corev1.Pod)) && over(e.ObjectNew.(*corev1.Pod))
		},
	}
}

// Freed is what has to be looked at again when the claims of a pod are free: for each of them, what next says.
func Freed(next handler.MapFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var due []reconcile.Request
		for _, v := range obj.(*corev1.Pod).Spec.Volumes {
			if p := v.PersistentVolumeClaim; p != nil {
				c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: p.ClaimName}}
				due = append(due, next(ctx, c)...)
			}
		}
		return due
	})
}

// writes: a pod that has not ended has the claim among its volumes, not only to read.
func writes(pod *corev1.Pod, claim string) bool {
	if over(pod) {
		return false
	}
	for _, v := range pod.Spec.Volumes {
		if p := v.PersistentVolumeClaim; p != nil && p.ClaimName == claim && !p.ReadOnly {
			return true
		}
	}
	return false
}

// mayRun: containers of the pod run, or may run at any moment. A kubelet starts none of them before all of the pod's claims are
// bound, so that a pod which waits for the clone itself is no user of its source. One that has no node yet is only a user if
// the scheduler may be about to place it because the clone is bound now: claims are bound a moment before their pod is.
func (e *Engine) mayRun(ctx context.Context, s *Seen, pod *corev1.Pod) (bool, error) {
	if pod.Status.Phase == corev1.PodRunning {
		return true, nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return false, err
		}
		if c == nil || c.Status.Phase != corev1.ClaimBound {
			return false, nil
		}
	}
	if pod.Spec.NodeName != "" {
		return true, nil
	}
	if s.claim == nil || pod.Namespace != s.claim.Namespace || !mounts(pod, s.claim.Name) {
		return false, nil
	}
	apart, err := e.apart(ctx, s)
	return !apart, err
}
