// Package uploadtarget lets images be uploaded into claims that somebody made and marked for it, as
// `virtctl image-upload pvc` does: each is an order for the engine of internal/controller/fill.
//
// It makes no claims and owns none: what becomes of one that is full, or not wanted any more, is its maker's business.
package uploadtarget

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
)

// annTarget marks a claim that an image is to be uploaded into; presence counts, not the value.
const annTarget = "cdi.kubevirt.io/storage.upload.target"

// parallel is how many claims are looked at at once. Most of a reconcile is waiting for the API server.
const parallel = 4

// Reconciler reconciles claims that are marked for an upload.
type Reconciler struct {
	reader  client.Reader // cached
	engine  *fill.Engine
	cluster *cluster.Writer
}

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, engine *fill.Engine, writer *cluster.Writer) error {
	r := &Reconciler{reader: mgr.GetClient(), engine: engine, cluster: writer}
	mine := predicate.NewPredicateFuncs(func(obj client.Object) bool { return marked(obj.(*corev1.PersistentVolumeClaim)) })
	return ctrl.NewControllerManagedBy(mgr).Named("uploadtarget").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(mine)).
		Owns(&corev1.Pod{}).
		Watches(&cdiv1.CDI{}, r.waiting()).
		Watches(&storagev1.StorageClass{}, r.waiting()).
		Watches(&corev1.ResourceQuota{}, r.waiting(), builder.WithPredicates(fill.Roomier())).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(r)
}

// waiting brings back the claims that a change may let go on: of the gate that holds them, of their class or their quota.
func (r *Reconciler) waiting() handler.EventHandler { return handler.EnqueueRequestsFromMapFunc(r.due) }

// due are the claims that are not full, in the object's namespace, or everywhere if it has none.
func (r *Reconciler) due(ctx context.Context, obj client.Object) []reconcile.Request {
	var claims corev1.PersistentVolumeClaimList
	if err := r.reader.List(ctx, &claims, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list claims that wait for an upload")
		return nil
	}
	var due []reconcile.Request
	for i := range claims.Items {
		if c := &claims.Items[i]; marked(c) && c.Annotations[fill.AnnPodPhase] != string(corev1.PodSucceeded) {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	return due
}

// marked: the claim is to take an upload, and nobody else fills it.
func marked(c *corev1.PersistentVolumeClaim) bool {
	_, is := c.Annotations[annTarget]
	return is && metav1.GetControllerOf(c) == nil && c.Spec.DataSource == nil && c.Spec.DataSourceRef == nil
}

// Reconcile brings one claim a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || c == nil || !marked(c) {
		return ctrl.Result{}, err
	}
	said := map[string]string{}
	if before, ok := c.Annotations[cluster.AnnState]; ok {
		said[cluster.AnnState] = before
	}
	seen, err := r.engine.Observe(ctx, fill.OfClaim(c, cluster.Marks{Annotations: said}))
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome, err := r.engine.Act(ctx, seen)
	if err != nil || outcome.Stale {
		return ctrl.Result{RequeueAfter: outcome.Again}, err
	}
	return ctrl.Result{RequeueAfter: outcome.Again}, r.say(ctx, c, seen, outcome)
}

// say writes the reason of the claim's state on it, and tells of it, when it is a new one.
func (r *Reconciler) say(ctx context.Context, c *corev1.PersistentVolumeClaim, seen *fill.Seen, o fill.Outcome) error {
	reason := string(o.Status.State.Reason)
	if c.Annotations[cluster.AnnState] == reason {
		return nil
	}
	marks := seen.Marks()
	marks.Annotations[cluster.AnnState] = reason
	if err := r.cluster.Mark(ctx, c, marks); err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if o.Status.State.Warn {
		kind = corev1.EventTypeWarning
	}
	r.cluster.Event(c, kind, reason, o.Status.State.Text())
	return nil
}
