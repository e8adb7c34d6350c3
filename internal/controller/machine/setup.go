package machine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
)

// parallel is how many machines are looked at at once. Most of a reconcile is waiting for the API server.
const parallel = 8

// byClaim indexes instances by the claims their volumes are in.
const byClaim = "claim"

// Setup adds both controllers to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, o Options) error {
	r := &Reconciler{reader: mgr.GetClient(), cluster: writer, clock: clock.RealClock{}, options: o}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &kubevirt.VirtualMachineInstance{}, byClaim, claims)
	if err != nil {
		return err
	}
	options := controller.Options{MaxConcurrentReconciles: parallel}
	err = ctrl.NewControllerManagedBy(mgr).Named("instance").
		For(&kubevirt.VirtualMachineInstance{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.PersistentVolumeClaim{}, r.users()).
		Watches(&cdiv1.DataVolume{}, r.users()).
		WithOptions(options).
		Complete(reconcile.Func(r.reconcileInstance))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("machine").
		For(&kubevirt.VirtualMachine{}).
		Owns(&cdiv1.DataVolume{}).
		Owns(&kubevirt.VirtualMachineInstance{}).
		// A pod or a volume speaks to its instance; the machine says what its instance says.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(machineOfPod)).
		Watches(&cdiv1.DataVolume{}, r.users()).
		WithOptions(options).
		Complete(reconcile.Func(r.reconcileMachine))
}

func claims(obj client.Object) []string {
	var names []string
	for _, v := range obj.(*kubevirt.VirtualMachineInstance).Spec.Volumes {
		if name, _ := render.ClaimOf(v); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// users brings back the instances (and so the machines, which have the same name) that use a claim of the object's name.
func (r *Reconciler) users() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var list kubevirt.VirtualMachineInstanceList
		err := r.reader.List(ctx, &list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{byClaim: obj.GetName()})
		if err != nil {
			log.FromContext(ctx).Error(err, "list the instances that use a claim")
			return nil
		}
		var due []reconcile.Request
		for _, i := range list.Items {
			due = append(due, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: i.Namespace, Name: i.Name}})
		}
		return due
	})
}

func machineOfPod(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[render.LabelDomain]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}
