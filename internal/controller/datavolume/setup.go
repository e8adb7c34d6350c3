package datavolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/requeue"
)

// parallel is how many volumes are reconciled at the same time. Most of the time is spent waiting for the API server.
const parallel = 8

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, engine *fill.Engine, writer *cluster.Writer) error {
	r := &Reconciler{reader: mgr.GetClient(), engine: engine, cluster: writer}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &cdiv1.DataVolume{}, originIndex, originOf); err != nil {
		return fmt.Errorf("index volumes by what they are cloned from: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&cdiv1.DataVolume{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		Owns(&corev1.Pod{}).
		// A claim that is not ours (yet) may stand in the way of the volume of its name.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&corev1.ResourceQuota{}, r.waiting(), builder.WithPredicates(requeue.Roomier())).
		Watches(&storagev1.StorageClass{}, r.waiting()).
		Watches(&cdiv1.StorageProfile{}, r.waiting()).
		Watches(&cdiv1.CDI{}, r.waiting()).
		Watches(&cdiv1.DataSource{}, handler.EnqueueRequestsFromMapFunc(r.cloning)).
		Watches(&accessv1.VolumeBackupSource{}, handler.EnqueueRequestsFromMapFunc(r.cloning)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(reserved)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.cloning)).
		Watches(&corev1.Pod{}, requeue.Users(r.cloning), builder.WithPredicates(requeue.BeginsOrEnds())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(requeue.Served)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(r))
}

func sameName(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
}

// reserved enqueues the volume whose claim a PersistentVolume is reserved for: its contents may have to be kept.
func reserved(_ context.Context, obj client.Object) []reconcile.Request {
	pv, ok := obj.(*corev1.PersistentVolume)
	if !ok || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}}}
}

// waiting brings back the volumes that are not complete, in the object's namespace or everywhere: what kept them
// waiting may have changed.
func (r *Reconciler) waiting() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var volumes cdiv1.DataVolumeList
		if err := r.reader.List(ctx, &volumes, client.InNamespace(obj.GetNamespace())); err != nil {
			log.FromContext(ctx).Error(err, "list volumes that wait")
			return nil
		}
		return incomplete(volumes)
	})
}

func incomplete(volumes cdiv1.DataVolumeList) []reconcile.Request {
	var due []reconcile.Request
	for i := range volumes.Items {
		if volumes.Items[i].Status.Phase != cdiv1.Succeeded {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&volumes.Items[i])})
		}
	}
	return due
}

// cloning brings back the volumes that are cloned from an object, as the index knows them.
func (r *Reconciler) cloning(ctx context.Context, obj client.Object) []reconcile.Request {
	var volumes cdiv1.DataVolumeList
	key := client.MatchingFields{originIndex: originKey(obj)}
	if err := r.reader.List(ctx, &volumes, key); err != nil {
		log.FromContext(ctx).Error(err, "list volumes cloned from an object", "object", originKey(obj))
		return nil
	}
	return incomplete(volumes)
}

const originIndex = "origin"

// originKey returns how the index calls what volumes are cloned from.
func originKey(obj client.Object) string {
	kind := "pvc"
	switch obj.(type) {
	case *cdiv1.DataSource:
		kind = "datasource"
	case *accessv1.VolumeBackupSource:
		kind = "backup"
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// originOf returns what a volume is cloned from. A volume behind a DataSource is found through that alone: its claim is usually
// there first, and where it is not the DataSource's own condition changes with it.
func originOf(obj client.Object) []string {
	v := obj.(*cdiv1.DataVolume)
	switch {
	case v.Spec.SourceRef != nil && v.Spec.SourceRef.Kind == accessv1.VolumeBackupSourceKind:
		return []string{"backup " + v.Namespace + "/" + v.Spec.SourceRef.Name}
	case v.Spec.SourceRef != nil:
		namespace := v.Namespace
		if v.Spec.SourceRef.Namespace != nil && *v.Spec.SourceRef.Namespace != "" {
			namespace = *v.Spec.SourceRef.Namespace
		}
		return []string{"datasource " + namespace + "/" + v.Spec.SourceRef.Name}
	case v.Spec.Source != nil && v.Spec.Source.PVC != nil:
		return []string{"pvc " + v.Spec.Source.PVC.Namespace + "/" + v.Spec.Source.PVC.Name}
	}
	return nil
}
