// Package restore restores machines from snapshots: VirtualMachineRestore. internal/decide/snapshot decides; this package observes,
// carries out and reports.
//
// A restored claim has the name of the machine's claim, so applying the machine's manifest again changes nothing. The package does
// not take snapshots, and knows their storage only as VolumeSnapshots.
package restore

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
)

// Reconciler reconciles restores.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader
	cluster *cluster.Writer
	clock   clock.PassiveClock
	records *diskaccess.Records
}

// parallel is how many restores are reconciled at the same time. Most of the time is spent waiting for the API server.
const parallel = 4

// look is how often objects are polled that are not watched: VolumeSnapshots, because not every cluster has them.
const look = time.Second

// lookAgain is how often a restore is checked that waits for a user.
const lookAgain = 5 * time.Second

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, records: records, clock: clock.RealClock{}}
	err := ctrl.NewControllerManagedBy(mgr).Named("machinerestore").
		For(&snapshotv1.VirtualMachineRestore{}).
		Watches(&kubevirt.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.restores)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up restores: %w", err)
	}
	return nil
}

func (r *Reconciler) read() snapshotcontent.Reader {
	return snapshotcontent.Reader{Cached: r.reader, Live: r.live, Clock: r.clock}
}

// restores enqueues the restores of an instance's machine, which has the same name.
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
