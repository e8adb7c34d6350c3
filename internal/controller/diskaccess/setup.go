package diskaccess

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/render"
)

// Setup adds the controller that frees disks of holders whose pod was removed by force. Who lets a pod go as it should frees its disks then.
func (r *Records) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("disk-access").
		For(&accessv1.DiskAccess{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.recordsOf), builder.WithPredicates(removed())).
		Complete(reconcile.Func(r.Reconcile))
}

// orphansAgain is how often a holder is checked whose pod is gone without having ended.
const orphansAgain = 30 * time.Second

// Reconcile frees a disk of holders whose pod was removed by force, finalizer included, as soon as their node cannot run it any
// more. The pod object proves nothing then, and its absence even less.
func (r *Records) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.reader, "", req.Name)
	if err != nil || record == nil {
		return ctrl.Result{}, err
	}
	again := time.Duration(0)
	for _, h := range record.Spec.Holders {
		if there, err := r.podThere(ctx, h); err != nil {
			return ctrl.Result{}, err
		} else if there {
			continue // who lets the pod go frees its disks
		}
		over, err := r.nodeForgot(ctx, h)
		if err != nil {
			return ctrl.Result{}, err
		}
		if over {
			return ctrl.Result{}, r.strike(ctx, record, h.PodUID) // the change brings the rest back
		}
		again = orphansAgain
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// podThere reports whether the holder's pod exists. Only the API server is believed if it does not.
func (r *Records) podThere(ctx context.Context, h accessv1.Holder) (bool, error) {
	for _, from := range []client.Reader{r.reader, r.live} {
		p, err := cluster.Get[corev1.Pod](ctx, from, h.Namespace, h.Pod)
		if err != nil || p != nil && p.UID == h.PodUID {
			return err == nil, err
		}
	}
	return false, nil
}

// nodeForgot reports whether whatever ran on the holder's node when it took the disk has ended. A holder without a node had not
// been given one when it was last seen, and is entered again with its node as soon as it has one.
func (r *Records) nodeForgot(ctx context.Context, h accessv1.Holder) (bool, error) {
	if h.Node == "" {
		return true, nil
	}
	if lost, err := podend.Lost(ctx, r.reader, r.live, h.Node); err != nil || lost != "" {
		return err == nil, err
	}
	node, err := cluster.Get[corev1.Node](ctx, r.live, "", h.Node)
	if err != nil || node == nil {
		return false, err
	}
	now := node.Status.NodeInfo.BootID
	return h.BootID != "" && now != "" && now != h.BootID, nil
}

// recordsOf enqueues the records of a pod that is gone.
func (r *Records) recordsOf(ctx context.Context, pod client.Object) []reconcile.Request {
	var records accessv1.DiskAccessList
	if err := r.reader.List(ctx, &records, client.HasLabels{HolderLabel(pod.GetUID())}); err != nil {
		log.FromContext(ctx).Error(err, "list the disks of a pod")
		return nil
	}
	var due []reconcile.Request
	for i := range records.Items {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&records.Items[i])})
	}
	return due
}

// removed holds when a pod of ours is gone from the server.
func removed() predicate.Predicate {
	no := func(event.TypedGenericEvent[client.Object]) bool { return false }
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: no,
		DeleteFunc: func(e event.DeleteEvent) bool {
			labels := e.Object.GetLabels()
			return labels[render.LabelMachine] != "" || labels[render.LabelApp] == render.App
		},
	}
}
