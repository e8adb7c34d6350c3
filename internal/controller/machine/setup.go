package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/metrics"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// parallel is how many machines are reconciled at the same time. Most of the time is spent waiting for the API server.
const parallel = 8

// byClaim indexes instances by the claims their volumes are in.
const byClaim = "claim"

// Setup adds the controllers to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, o Options) error {
	data, err := dataSide(mgr)
	if err != nil {
		return err
	}
	disks := diskstate.Reader{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Data: data, Records: records}
	ask := probe.At[launcherapi.Returns](launcherapi.ReadyPort, launcherapi.ReturnsPath)
	r := New(&observed.Reader{Reader: disks, Options: o, Ask: ask}, writer, clock.RealClock{})
	err = mgr.GetFieldIndexer().IndexField(context.Background(), &kubevirt.VirtualMachineInstance{}, byClaim, claims)
	if err != nil {
		return err
	}
	if err := ctrlmetrics.Registry.Register(metrics.Machines{Reader: mgr.GetClient(), Now: time.Now}); err != nil {
		return fmt.Errorf("register metrics of machines: %w", err)
	}
	if err := r.setupEnd(mgr); err != nil {
		return err
	}
	options := controller.Options{MaxConcurrentReconciles: parallel}
	instances := ctrl.NewControllerManagedBy(mgr).Named("instance").
		For(&kubevirt.VirtualMachineInstance{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(instanceOfHotPod)). // they belong to the launcher
		Watches(&corev1.PersistentVolumeClaim{}, r.users()).
		Watches(&accessv1.DiskAccess{}, r.waiters()).
		Watches(&kubevirt.VirtualMachineInstanceMigration{}, handler.EnqueueRequestsFromMapFunc(instanceOfMigration)).
		Owns(&policyv1.PodDisruptionBudget{}).
		Watches(&kubevirt.KubeVirt{}, handler.EnqueueRequestsFromMapFunc(r.allInstances)).
		Watches(&storagev1.StorageClass{}, r.awaiting()).
		// What its owner makes of its volumes while it runs; both have the same name.
		Watches(&kubevirt.VirtualMachine{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options)
	machines := ctrl.NewControllerManagedBy(mgr).Named("machine").
		For(&kubevirt.VirtualMachine{}).
		Owns(&kubevirt.VirtualMachineInstance{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		Owns(&accessv1.ContainerVolume{}).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(machineOfSnapshot)).
		Watches(&snapshotv1.VirtualMachineRestore{}, handler.EnqueueRequestsFromMapFunc(machineOfRestore)).
		// A pod or a volume speaks to its instance; the machine says what its instance says.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(machineOfPod)).
		WithOptions(options)
	if r.Read.Data {
		instances = instances.Watches(&cdiv1.DataVolume{}, r.users())
		machines = machines.Owns(&cdiv1.DataVolume{}).Watches(&cdiv1.DataVolume{}, r.users())
	}
	if err := instances.Complete(cluster.Settle(reconcile.Func(r.Instance.Reconcile))); err != nil {
		return err
	}
	if err := machines.Complete(cluster.Settle(reconcile.Func(r.VM.Reconcile))); err != nil {
		return err
	}
	for name, reconciler := range map[string]reconcile.Func{"migration": r.Migration.Reconcile, "migration-offline": r.Offline.Reconcile} {
		err := ctrl.NewControllerManagedBy(mgr).Named(name).
			For(&kubevirt.VirtualMachineInstanceMigration{}).
			Watches(&kubevirt.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.migrationsAbout(client.Object.GetName))).
			Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.migrationsAbout(domainLabel))).
			WithOptions(options).
			Complete(cluster.Settle(reconciler))
		if err != nil {
			return err
		}
	}
	return nil
}

func domainLabel(obj client.Object) string { return obj.GetLabels()[render.LabelDomain] }

func instanceOfMigration(_ context.Context, obj client.Object) []reconcile.Request {
	return machineNamed(obj, obj.(*kubevirt.VirtualMachineInstanceMigration).Spec.VMIName)
}

// dataSide: the cluster has the kinds of a data side, ours or another. A machine whose claims need none of it runs
// without.
func dataSide(mgr ctrl.Manager) (bool, error) {
	kind := cdiv1.SchemeGroupVersion.WithKind("DataVolume")
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
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
func (r *Controllers) users() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var list kubevirt.VirtualMachineInstanceList
		err := r.Read.Cached.List(ctx, &list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{byClaim: obj.GetName()})
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

func instanceOfHotPod(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[render.LabelInstance]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

func machineOfPod(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[render.LabelDomain]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}
