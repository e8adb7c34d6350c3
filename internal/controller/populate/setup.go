package populate

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/requeue"
)

// parallel is how many claims are reconciled at the same time. Most of the time is spent waiting for the API server.
const parallel = 8

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, engine *fill.Engine, writer *cluster.Writer) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), engine: engine, cluster: writer, clock: clock.RealClock{}}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.PersistentVolumeClaim{}, refIndex, refOf)
	if err != nil {
		return fmt.Errorf("index claims by their data sources: %w", err)
	}
	mine := predicate.NewPredicateFuncs(func(obj client.Object) bool { return ours(obj.(*corev1.PersistentVolumeClaim)) })
	b := ctrl.NewControllerManagedBy(mgr).Named("populate").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(mine)).
		Owns(&corev1.PersistentVolumeClaim{}). // the primes
		Owns(&corev1.Pod{}).
		Watches(&cdiv1.VolumeImportSource{}, r.naming(cdiv1.VolumeImportSourceRef)).
		Watches(&cdiv1.VolumeUploadSource{}, r.naming(cdiv1.VolumeUploadSourceRef)).
		Watches(&cdiv1.VolumeCloneSource{}, r.naming(cdiv1.VolumeCloneSourceRef)).
		Watches(&accessv1.VolumeBackupSource{}, r.naming(accessv1.VolumeBackupSourceKind)).
		Watches(&cdiv1.DataSource{}, handler.EnqueueRequestsFromMapFunc(r.standing)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.cloning)).
		Watches(&corev1.Pod{}, requeue.Users(r.cloning), builder.WithPredicates(requeue.BeginsOrEnds())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.inside), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(reserved)).
		Watches(&storagev1.StorageClass{}, r.waiting()).
		Watches(&corev1.ResourceQuota{}, r.waiting(), builder.WithPredicates(requeue.Roomier())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(requeue.Served)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel})
	if _, err := mgr.GetRESTMapper().RESTMapping(clonesource.Grant.GroupKind(), clonesource.Grant.Version); err == nil {
		grant := &unstructured.Unstructured{}
		grant.SetGroupVersionKind(clonesource.Grant)
		b = b.Watches(grant, handler.EnqueueRequestsFromMapFunc(r.referring))
		r.grantsWatched = true
	}
	return b.Complete(cluster.Settle(r))
}

// refIndex finds claims by what they name as their data source; those in other namespaces than that also as abroad.
const refIndex = "populatedFrom"

func refKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func abroad(namespace string) string { return "abroad " + namespace }

// waitingKey returns the claims that are not bound yet.
func waitingKey(namespace string) string { return "waiting " + namespace }

func refOf(obj client.Object) []string {
	c := obj.(*corev1.PersistentVolumeClaim)
	if !ours(c) {
		return nil
	}
	space := sourceSpace(c)
	keys := []string{refKey(c.Spec.DataSourceRef.Kind, space, c.Spec.DataSourceRef.Name)}
	if space != c.Namespace {
		keys = append(keys, abroad(space))
	}
	if c.Status.Phase != corev1.ClaimBound {
		keys = append(keys, waitingKey(""), waitingKey(c.Namespace))
	}
	return keys
}

// found enqueues the claims that the index has under a key.
func (r *Reconciler) found(ctx context.Context, key string) []reconcile.Request {
	var claims corev1.PersistentVolumeClaimList
	if err := r.reader.List(ctx, &claims, client.MatchingFields{refIndex: key}); err != nil {
		log.FromContext(ctx).Error(err, "list claims by their data source", "key", key)
		return nil
	}
	var due []reconcile.Request
	for i := range claims.Items {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
	}
	return due
}

// naming enqueues the claims that name a source of that kind.
func (r *Reconciler) naming(kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return r.found(ctx, refKey(kind, obj.GetNamespace(), obj.GetName()))
	})
}

// cloning brings back the claims that are cloned from a claim. There are few VolumeCloneSources in a namespace, and few DataSources, so they
// are simply looked through.
func (r *Reconciler) cloning(ctx context.Context, obj client.Object) []reconcile.Request {
	var sources cdiv1.VolumeCloneSourceList
	if err := r.reader.List(ctx, &sources, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list sources of clones", "namespace", obj.GetNamespace())
		return nil
	}
	var due []reconcile.Request
	for _, s := range sources.Items {
		if s.Spec.Source.Name == obj.GetName() {
			due = append(due, r.found(ctx, refKey(cdiv1.VolumeCloneSourceRef, s.Namespace, s.Name))...)
		}
	}
	return append(due, r.referred(ctx, func(d *cdiv1.DataSource) bool {
		pvc := d.Spec.Source.PVC
		return pvc != nil && pvc.Name == obj.GetName() && cmp.Or(pvc.Namespace, d.Namespace) == obj.GetNamespace()
	}, 1)...)
}

// standing brings back the claims that name a DataSource, or one that stands for it.
func (r *Reconciler) standing(ctx context.Context, obj client.Object) []reconcile.Request {
	due := r.found(ctx, refKey(cdiv1.DataVolumeDataSource, obj.GetNamespace(), obj.GetName()))
	return append(due, r.referred(ctx, standsFor(obj), 0)...)
}

// standsFor finds the DataSources that stand for another one.
func standsFor(obj client.Object) func(*cdiv1.DataSource) bool {
	return func(d *cdiv1.DataSource) bool {
		next := d.Spec.Source.DataSource
		return next != nil && d.Namespace == obj.GetNamespace() && next.Name == obj.GetName()
	}
}

// referred returns the claims that refer to one of the matching DataSources, directly or through other DataSources.
func (r *Reconciler) referred(ctx context.Context, matches func(*cdiv1.DataSource) bool, further int) []reconcile.Request {
	var all cdiv1.DataSourceList
	if err := r.reader.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "list DataSources")
		return nil
	}
	var due []reconcile.Request
	for i := range all.Items {
		d := &all.Items[i]
		if !matches(d) {
			continue
		}
		due = append(due, r.found(ctx, refKey(cdiv1.DataVolumeDataSource, d.Namespace, d.Name))...)
		if further > 0 {
			due = append(due, r.referred(ctx, standsFor(d), further-1)...)
		}
	}
	return due
}

// referring enqueues the claims of other namespaces that depend on a namespace's permissions: their source, or the source of their
// DataSource, is in it.
func (r *Reconciler) referring(ctx context.Context, obj client.Object) []reconcile.Request {
	return append(r.found(ctx, abroad(obj.GetNamespace())), r.referred(ctx, func(d *cdiv1.DataSource) bool {
		pvc, snapshot := d.Spec.Source.PVC, d.Spec.Source.Snapshot
		return d.Namespace != obj.GetNamespace() &&
			(pvc != nil && pvc.Namespace == obj.GetNamespace() || snapshot != nil && snapshot.Namespace == obj.GetNamespace())
	}, 1)...)
}

// inside brings back the claims that wait in a namespace, and those of others that name its sources: its labels say which images it may use, and whether its own may be used.
func (r *Reconciler) inside(ctx context.Context, obj client.Object) []reconcile.Request {
	return append(r.found(ctx, waitingKey(obj.GetName())), r.found(ctx, abroad(obj.GetName()))...)
}

// waiting brings back the claims that are not bound, in the object's namespace or everywhere.
func (r *Reconciler) waiting() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return r.found(ctx, waitingKey(obj.GetNamespace()))
	})
}

// reserved returns the claim that a volume was given to.
func reserved(_ context.Context, obj client.Object) []reconcile.Request {
	ref := obj.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil || obj.GetAnnotations()[cluster.AnnFilledFor] == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}}
}
