// Package snapshot takes snapshots of machines and puts them back: VirtualMachineSnapshot, its content, and
// VirtualMachineRestore. internal/decide/snapshot decides; this package observes, carries out and reports.
//
// It leaves the volumes to the cluster's VolumeSnapshots, and the guest to its launcher. A restored claim has the name the
// machine's claim has, so applying the machine's manifest again changes nothing.
package snapshot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
)

// Guest is a way to the agent in a machine's guest, through its launcher pod.
type Guest interface {
	// Freeze makes the guest hold still; false means that it has no agent that answers. It does not wait: until the launcher
	// has answered the error is ask.ErrNoAnswerYet, and then done is called.
	Freeze(launcher *corev1.Pod, snapshot types.UID, done func()) (bool, error)
	// Thaw lets it go on; false means that it went on by itself before. Asked again, it answers the same. Nor does it wait.
	Thaw(launcher *corev1.Pod, snapshot types.UID, done func()) (bool, error)
}

// Reconciler reconciles snapshots and restores.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader
	cluster *cluster.Writer
	clock   clock.PassiveClock
	records *diskaccess.Records
	guest   Guest
	// answered brings a snapshot back whose guest has answered.
	answered chan event.GenericEvent
}

// parallel is how many snapshots, and how many restores, are reconciled at the same time. Most of the time is spent waiting for
// the API server.
const parallel = 4

// look is how often objects are polled that are not watched: VolumeSnapshots, because not every cluster has them.
const look = time.Second

// lookStored is how often the parts of a finished snapshot are checked: one may have been deleted.
const lookStored = 2 * time.Minute

// lookAgain is how often an object is checked that waits for a user.
const lookAgain = 5 * time.Second

// Setup adds both controllers to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, guest Guest) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, records: records, clock: clock.RealClock{}, guest: guest,
		answered: make(chan event.GenericEvent)}
	err := ctrl.NewControllerManagedBy(mgr).Named("machinesnapshot").
		For(&snapshotv1.VirtualMachineSnapshot{}).
		Owns(&snapshotv1.VirtualMachineSnapshotContent{}).
		WatchesRawSource(source.Channel(r.answered, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.reconcileSnapshot)))
	if err != nil {
		return fmt.Errorf("set up snapshots: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("machinerestore").
		For(&snapshotv1.VirtualMachineRestore{}).
		Watches(&kubevirt.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.restores)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.reconcileRestore)))
	if err != nil {
		return fmt.Errorf("set up restores: %w", err)
	}
	return nil
}

// restores brings back the restores of an instance's machine, which has the same name.
func (r *Reconciler) restores(ctx context.Context, obj client.Object) []reconcile.Request {
	var list snapshotv1.VirtualMachineRestoreList
	if err := r.reader.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list the restores of a machine")
		return nil
	}
	var due []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.Target.Name == obj.GetName() {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return due
}

func owner(obj client.Object, kind string) metav1.OwnerReference {
	return *metav1.NewControllerRef(obj, snapshotv1.GroupVersion.WithKind(kind))
}
