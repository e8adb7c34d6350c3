package relocate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/identity"
)

// parallel is how many claims are reconciled at the same time.
const parallel = 4

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records) error {
	r := &Reconciler{Reader: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: writer, Records: records}
	return ctrl.NewControllerManagedBy(mgr).Named("relocate").
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(claimOfVolume)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.claims)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.claimsOfPod)).
		Watches(&accessv1.DiskAccess{}, handler.EnqueueRequestsFromMapFunc(r.claimsOfDisk)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(r))
}

// claimOfVolume returns the claim that a volume's record or alias is about.
func claimOfVolume(_ context.Context, obj client.Object) []reconcile.Request {
	key, ok := replacedclaim.ClaimOf(obj.(*corev1.PersistentVolume))
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// claims returns a claim if a volume has a record of it, or it has our finalizer; and the claim that it is the replacement of.
func (r *Reconciler) claims(ctx context.Context, obj client.Object) []reconcile.Request {
	due := r.recorded(ctx, client.ObjectKeyFromObject(obj))
	if slices.Contains(obj.GetFinalizers(), replacedclaim.Finalizer) {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	}
	return due
}

// claimsOfPod returns the claims that a pod's claims are replacements of.
func (r *Reconciler) claimsOfPod(ctx context.Context, obj client.Object) []reconcile.Request {
	var due []reconcile.Request
	for _, v := range obj.(*corev1.Pod).Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			due = append(due, r.recorded(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: v.PersistentVolumeClaim.ClaimName})...)
		}
	}
	return due
}

// recorded returns the claims whose records name this claim.
func (r *Reconciler) recorded(ctx context.Context, claim types.NamespacedName) []reconcile.Request {
	var list corev1.PersistentVolumeList
	if err := r.Reader.List(ctx, &list, client.MatchingFields{cacheindex.VolumeMoved: claim.String()}); err != nil {
		log.FromContext(ctx).Error(err, "find the volumes whose records name a claim")
		return nil
	}
	return requests(ctx, list.Items)
}

// claimsOfDisk returns the claims whose data is on a disk whose holders changed.
func (r *Reconciler) claimsOfDisk(ctx context.Context, obj client.Object) []reconcile.Request {
	var list corev1.PersistentVolumeList
	if err := r.Reader.List(ctx, &list, client.HasLabels{replacedclaim.Label}); err != nil {
		log.FromContext(ctx).Error(err, "find the volumes of moved disks")
		return nil
	}
	var due []corev1.PersistentVolume
	for _, pv := range list.Items {
		if identity.Volume(&pv).Name() == obj.GetName() {
			due = append(due, pv)
		}
	}
	return requests(ctx, due)
}

func requests(ctx context.Context, volumes []corev1.PersistentVolume) []reconcile.Request {
	var out []reconcile.Request
	for i := range volumes {
		out = append(out, claimOfVolume(ctx, &volumes[i])...)
	}
	return out
}
