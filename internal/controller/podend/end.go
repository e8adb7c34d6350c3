// Package podend keeps a pod of ours until what runs in it has certainly ended. A pod that is deleted by force is gone from the
// API server while its containers may still run, and a node that is cut off runs them for as long as it likes. If the disk were
// given to another pod then, it would have two writers. So these pods have a finalizer, and this package takes it away when the
// kubelet has said that every container has ended, or when the node is known to be gone.
//
// It does not know what the pods are for.
package podend

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
)

// Keeper removes one finalizer from pods that have ended.
type Keeper struct {
	Reader    client.Reader // cached
	Live      client.Reader // the server itself: a node that is missing in a cache may only be unknown to it
	Cluster   *cluster.Writer
	Finalizer string
	// Before is called when the pod has certainly ended, and calls letGo to remove the finalizer; nil: the finalizer is removed at
	// once. It may be called again.
	Before func(ctx context.Context, p *corev1.Pod, letGo func() error) error
}

// parallel is how many pods are reconciled at the same time.
const parallel = 8

// Setup adds the controller to mgr under a name.
func (k *Keeper) Setup(mgr ctrl.Manager, name string) error {
	mine := predicate.NewPredicateFuncs(func(o client.Object) bool { return slices.Contains(o.GetFinalizers(), k.Finalizer) })
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&corev1.Pod{}, builder.WithPredicates(mine)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(k.podsOf), builder.WithPredicates(fate())).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(reconcile.Func(k.Reconcile))
}

// Reconcile removes the finalizer of one pod if its end is certain.
func (k *Keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p, err := cluster.Get[corev1.Pod](ctx, k.Reader, req.Namespace, req.Name)
	if err != nil || p == nil || !slices.Contains(p.Finalizers, k.Finalizer) {
		return ctrl.Result{}, err
	}
	over, err := Certain(ctx, k.Reader, k.Live, p)
	if err != nil || !over {
		return ctrl.Result{}, err // the pod or its node brings it back
	}
	letGo := func() error {
		next := p.DeepCopy()
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == k.Finalizer })
		return client.IgnoreNotFound(k.Cluster.Change(ctx, p, next))
	}
	if k.Before == nil {
		return ctrl.Result{}, letGo()
	}
	return ctrl.Result{}, k.Before(ctx, p, letGo)
}

// Certain reports whether no container of the pod can run any more.
func Certain(ctx context.Context, reader, live client.Reader, p *corev1.Pod) (bool, error) {
	switch {
	case Over(p):
		return true, nil
	case p.Spec.NodeName == "":
		return p.DeletionTimestamp != nil, nil // the server gives no node to a pod that is being deleted
	}
	lost, err := Lost(ctx, reader, live, p.Spec.NodeName)
	return lost != "", err
}

// Over reports whether every container of the pod has ended, as the kubelet reported, or the controller that reports for a lost
// node.
func Over(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return false
	}
	runs := func(s corev1.ContainerStatus) bool { return s.State.Running != nil }
	return !slices.ContainsFunc(p.Status.ContainerStatuses, runs) && !slices.ContainsFunc(p.Status.InitContainerStatuses, runs)
}

// Lost returns the reason why no container can run on a node any more, and "" if one may. A node that does not answer is not lost:
// it may only be disconnected.
func Lost(ctx context.Context, reader, live client.Reader, name string) (string, error) {
	for _, from := range []client.Reader{reader, live} {
		node, err := cluster.Get[corev1.Node](ctx, from, "", name)
		switch {
		case err != nil:
			return "", err
		case node != nil && OutOfService(node):
			return "is out of service", nil
		case node != nil:
			return "", nil
		}
	}
	return "was deleted", nil
}

// OutOfService reports whether an administrator has declared the node switched off.
func OutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// podsOf enqueues the pods of a node that still have the finalizer.
func (k *Keeper) podsOf(ctx context.Context, node client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := k.Reader.List(ctx, &pods, client.MatchingFields{cacheindex.PodNode: node.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "list the pods of a node")
		return nil
	}
	var due []reconcile.Request
	for i := range pods.Items {
		p := &pods.Items[i]
		if slices.Contains(p.Finalizers, k.Finalizer) {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return due
}

// fate selects events about a node that is deleted or declared lost; the frequent other updates of nodes are ignored.
func fate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return OutOfService(e.Object.(*corev1.Node)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !OutOfService(e.ObjectOld.(*corev1.Node)) && OutOfService(e.ObjectNew.(*corev1.Node))
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
