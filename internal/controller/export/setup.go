// Package export lets people download disks: VirtualMachineExport. internal/decide/export decides; this package observes, carries out
// and reports.
//
// The bytes are the server's business: a pod of its own for each export, with the claims mounted to be read, a key made for it, the
// token of the export, and no rights at all.
package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/decide/export"
)

// Reconciler reconciles exports.
type Reconciler struct {
	reader   client.Reader // cached
	live     client.Reader
	cluster  *cluster.Writer
	clock    clock.PassiveClock
	settings config.Reader
	image    string
	records  *diskaccess.Records
}

// parallel is how many exports are reconciled at the same time. Most of the time is spent waiting for the API server.
const parallel = 4

// look is how often objects are polled that are not watched: a snapshot that becomes ready, a volume that is released.
const look = 2 * time.Second

// lookService is how often to check that the Service of a ready export still exists. It is polled, because a watch would need the
// right to read all Services, and a cache of them.
const lookService = 15 * time.Second

// Setup adds the controller to mgr. The servers run image.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, image string) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, clock: clock.RealClock{},
		settings: config.NewReader(mgr.GetClient()), image: image, records: records}
	beside := handler.EnqueueRequestsFromMapFunc(r.beside)
	err := ctrl.NewControllerManagedBy(mgr).Named("export").
		For(&exportv1.VirtualMachineExport{}).
		// Pods that begin to use a disk that is being read.
		Watches(&corev1.Pod{}, beside).
		Watches(&kubevirt.VirtualMachineInstance{}, beside).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up exports: %w", err)
	}
	return nil
}

// beside brings back the exports of a namespace. There are few of them, and most namespaces have none.
func (r *Reconciler) beside(ctx context.Context, obj client.Object) []reconcile.Request {
	var all exportv1.VirtualMachineExportList
	if err := r.reader.List(ctx, &all, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list exports")
		return nil
	}
	var due []reconcile.Request
	for i := range all.Items {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return due
}

// Reconcile takes one export a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of, err := cluster.Get[exportv1.VirtualMachineExport](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil {
		return ctrl.Result{}, err // what is its is deleted with it
	}
	s, err := r.observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := export.Decide(s.facts())
	for _, a := range p.Do {
		err := r.act(ctx, a, s)
		if errors.Is(err, cluster.ErrStale) {
			return ctrl.Result{RequeueAfter: look}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.report(ctx, s, p.State)
}
