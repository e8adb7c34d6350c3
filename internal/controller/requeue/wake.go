// Package requeue says which events of others bring back a volume or a claim that waits: a quota that has room again, a pod that lets
// its claims go, a server in another namespace. It does not know what is done then.
package requeue

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Roomier selects changes of a quota that allow more than before, because it was raised or a counted object is gone. A quota that
// fills up is no reason to reconcile every volume of the namespace.
func Roomier() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, now := e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota)
			if !equality.Semantic.DeepEqual(old.Status.Hard, now.Status.Hard) {
				return true
			}
			for name, used := range now.Status.Used {
				before := old.Status.Used[name]
				if used.Cmp(before) < 0 {
					return true
				}
			}
			return false
		},
	}
}

// BeginsOrEnds selects events of pods that may begin to use their claims, or that end: a clone of such a claim waits for the end,
// and must not continue beside a pod that has begun.
func BeginsOrEnds() predicate.Predicate {
	uses := func(obj client.Object) bool { p := obj.(*corev1.Pod); return p.Spec.NodeName != "" && !pods.Over(p) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return uses(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return uses(e.ObjectOld) != uses(e.ObjectNew) },
	}
}

// Users returns what has to be checked again when a pod begins to use its claims or lets them go: for each of them, what next says.
func Users(next handler.MapFunc) handler.EventHandler {
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

// Served maps the pod of a server in another namespace to the object that it works for.
func Served(_ context.Context, obj client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(obj.GetAnnotations()[names.Serves], "/")
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
