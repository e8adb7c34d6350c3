// Package annotatedclaim fills claims that users made and ordered contents for with annotations: an upload, as `virtctl
// image-upload pvc` does, or an import, as scripts have done since before there were DataVolumes. Each is an order for the engine
// of internal/controller/fill; internal/claimorder reads it.
//
// It makes no claims and owns none: their users decide what happens to a claim that is full, or no longer needed.
package annotatedclaim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/requeue"
	"github.com/berth-vm/berth/internal/state"
)

// parallel is how many claims are reconciled at the same time. Most of the time is spent waiting for the API server.
const parallel = 4

// Reconciler reconciles claims with an order in their annotations, or with one that was removed.
type Reconciler struct {
	reader  client.Reader // cached
	engine  *fill.Engine
	cluster *cluster.Writer
}

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, engine *fill.Engine, writer *cluster.Writer) error {
	r := &Reconciler{reader: mgr.GetClient(), engine: engine, cluster: writer}
	mine := predicate.NewPredicateFuncs(func(obj client.Object) bool { return ordered(obj.(*corev1.PersistentVolumeClaim)) })
	// The order's end is news too.
	mine.UpdateFunc = func(e event.UpdateEvent) bool {
		return ordered(e.ObjectOld.(*corev1.PersistentVolumeClaim)) || ordered(e.ObjectNew.(*corev1.PersistentVolumeClaim))
	}
	return ctrl.NewControllerManagedBy(mgr).Named("bareclaim").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(mine)).
		Owns(&corev1.Pod{}).
		Watches(&cdiv1.CDI{}, r.waiting()).
		Watches(&storagev1.StorageClass{}, r.waiting()).
		Watches(&corev1.ResourceQuota{}, r.waiting(), builder.WithPredicates(requeue.Roomier())).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(r))
}

// waiting enqueues the claims that a change may unblock: of the feature gate, of their class or their quota.
func (r *Reconciler) waiting() handler.EventHandler { return handler.EnqueueRequestsFromMapFunc(r.due) }

// due returns the claims that are not full, in the object's namespace, or everywhere if it has none.
func (r *Reconciler) due(ctx context.Context, obj client.Object) []reconcile.Request {
	var claims corev1.PersistentVolumeClaimList
	if err := r.reader.List(ctx, &claims, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list claims that wait to be filled")
		return nil
	}
	var due []reconcile.Request
	for i := range claims.Items {
		if c := &claims.Items[i]; ordered(c) && !claimorder.Complete(c) {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	return due
}

// ordered reports whether the claim has an order, whether or not it can be carried out.
func ordered(c *corev1.PersistentVolumeClaim) bool {
	spec, err := claimorder.Of(c)
	return spec != nil || err != nil
}

// Reconcile brings one claim a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || c == nil || clonesource.PopulatedByUs(c) { // whose worker, if it is filled in place, is internal/controller/populate's
		return ctrl.Result{}, err
	}
	spec, refused := claimorder.Of(c)
	if spec == nil || refused != nil {
		return ctrl.Result{}, r.withdraw(ctx, c, refused)
	}
	seen, err := r.engine.Observe(ctx, fill.OfClaim(c, *spec, kept(c)))
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome, err := r.engine.Act(ctx, seen)
	if err != nil || outcome.Stale {
		return ctrl.Result{RequeueAfter: outcome.Again}, err
	}
	return ctrl.Result{RequeueAfter: outcome.Again}, r.say(ctx, c, seen.Marks(), outcome.Status.State)
}

// kept returns what we have written on a claim besides what the engine has: the last word about it.
func kept(c *corev1.PersistentVolumeClaim) cluster.Marks {
	marks := cluster.Marks{Annotations: map[string]string{}}
	if before, ok := c.Annotations[cluster.AnnState]; ok {
		marks.Annotations[cluster.AnnState] = before
	}
	return marks
}

// withdraw stops the work for a claim whose order was withdrawn, or cannot be carried out. What is reported of a full claim
// stays, as do the marks of others on claims that they fill.
func (r *Reconciler) withdraw(ctx context.Context, c *corev1.PersistentVolumeClaim, refused error) error {
	if err := r.engine.Withdraw(ctx, c); err != nil {
		return err
	}
	_, said := c.Annotations[cluster.AnnState]
	switch {
	case claimorder.Complete(c), !claimorder.Free(c):
		return nil
	case refused != nil:
		no := state.Of(state.Unsupported)
		no.Claim, no.Detail = c.Name, refused.Error()
		return r.say(ctx, c, cluster.Marks{Annotations: map[string]string{}}, no)
	case said:
		return r.cluster.Mark(ctx, c, cluster.Marks{})
	}
	return nil
}

// say writes the reason of the claim's state on it, and tells of it, when it is a new one.
func (r *Reconciler) say(ctx context.Context, c *corev1.PersistentVolumeClaim, marks cluster.Marks, s state.State) error {
	reason := string(s.Reason)
	if c.Annotations[cluster.AnnState] == reason {
		return nil
	}
	marks.Annotations[cluster.AnnState] = reason
	if err := r.cluster.Mark(ctx, c, marks); err != nil {
		return err
	}
	r.cluster.Tell(c, s)
	return nil
}
