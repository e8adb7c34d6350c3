package datavolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
)

// parallel is how many volumes are looked at at once. Most of a reconcile is waiting for the API server.
const parallel = 8

// Setup adds the controller to mgr. Workers run image.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, image string) error {
	r := &Reconciler{
		reader: mgr.GetClient(), live: mgr.GetAPIReader(), settings: config.NewReader(mgr.GetClient()), cluster: writer,
		clock: clock.RealClock{}, image: image, ask: askOverHTTP(),
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&cdiv1.DataVolume{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		Owns(&corev1.Pod{}).
		// A claim that is not ours (yet) may stand in the way of the volume of its name.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(&corev1.ResourceQuota{}, r.waiting()).
		Watches(&storagev1.StorageClass{}, r.waiting()).
		Watches(&cdiv1.StorageProfile{}, r.waiting()).
		Watches(&cdiv1.CDI{}, r.waiting()).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(r)
}

func sameName(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
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
		var due []reconcile.Request
		for _, v := range volumes.Items {
			if v.Status.Phase != cdiv1.Succeeded {
				due = append(due, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: v.Namespace, Name: v.Name}})
			}
		}
		return due
	})
}
