// Package backup backs machines up: VirtualMachineBackup and VirtualMachineBackupTracker. internal/decide/backup decides; this package observes,
// carries out and reports.
//
// The disks are the launcher's business, which holds them as they are at one moment; the bytes are the worker's, which reads them there and writes
// them into the claim. The controller brings the two together, with keys made for one backup, and never sees a byte.
package backup

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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/decide/backup"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Reconciler reconciles backups.
type Reconciler struct {
	reader   client.Reader // cached
	live     client.Reader
	cluster  *cluster.Writer
	clock    clock.PassiveClock
	settings config.Reader
	image    string
	records  *diskaccess.Records
	guests   Guests
	progress worker.Asker
	answered chan event.GenericEvent
}

// parallel is how many backups are looked at at once. Most of it is waiting for the API server.
const parallel = 4

// look is how often a backup is looked at that goes on: how far it is, and what is not watched.
const look = 2 * time.Second

// Setup adds the controller to mgr. The workers run image.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, guests Guests, image string) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, clock: clock.RealClock{},
		settings: config.NewReader(mgr.GetClient()), image: image, records: records, guests: guests, progress: worker.AskOverHTTP(),
		answered: make(chan event.GenericEvent)}
	beside := handler.EnqueueRequestsFromMapFunc(r.beside)
	err := ctrl.NewControllerManagedBy(mgr).Named("backup").
		For(&backupv1.VirtualMachineBackup{}).
		Owns(&corev1.Pod{}).
		Watches(&kubevirt.VirtualMachineInstance{}, beside).
		Watches(&backupv1.VirtualMachineBackupTracker{}, beside).
		WatchesRawSource(source.Channel(r.answered, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up backups: %w", err)
	}
	return nil
}

// beside brings back the backups of a namespace that go on.
func (r *Reconciler) beside(ctx context.Context, obj client.Object) []reconcile.Request {
	var all backupv1.VirtualMachineBackupList
	if err := r.reader.List(ctx, &all, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list backups")
		return nil
	}
	var due []reconcile.Request
	for i := range all.Items {
		if !all.Items[i].Over() {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return due
}

// Reconcile takes one backup a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Not the cache: a backup that it does not know to have ended would begin again.
	of, err := cluster.Get[backupv1.VirtualMachineBackup](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil {
		return ctrl.Result{}, err
	}
	s, err := r.observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := backup.Decide(s.facts())
	say := p.State
	for _, a := range p.Do {
		err := r.act(ctx, a, s)
		var other *instead
		switch {
		case errors.Is(err, cluster.ErrStale):
			return ctrl.Result{RequeueAfter: look}, nil
		case errors.As(err, &other):
			s.detail = other.detail
			return r.report(ctx, s, other.say)
		case errors.Is(err, probe.ErrNoAnswerYet):
			if state.OfBackup(say).Ends() || of.DeletionTimestamp == nil && of.Condition(backupv1.ConditionProgressing) != nil {
				return ctrl.Result{RequeueAfter: look}, nil // the launcher's answer brings it back, and says more than we know now
			}
			return r.report(ctx, s, say)
		case err != nil:
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	if p.Does(backup.LetGo) {
		return ctrl.Result{}, nil // it has ended and stays as it is, or is gone
	}
	return r.report(ctx, s, say)
}

// instead is an error that ends a reconciliation because of a launcher's answer. Its reason is reported in place of the decided one.
type instead struct {
	say    state.BackupReason
	detail string
}

func (i *instead) Error() string { return i.detail }

// comeBack has a backup looked at again.
func (r *Reconciler) comeBack(of *backupv1.VirtualMachineBackup) func() {
	return func() { r.answered <- event.GenericEvent{Object: of} }
}

// serverKeysName is the Secret with the keys of a server that clients fetch the disks from.
func serverKeysName(of *backupv1.VirtualMachineBackup) string {
	return "backup-" + string(of.UID) + "-server"
}

func keysName(of *backupv1.VirtualMachineBackup) string { return "backup-" + string(of.UID) + "-tls" }

// checkpointName returns the name of the backup in its set.
func checkpointName(of *backupv1.VirtualMachineBackup) string {
	return render.BackupCheckpoint(of.Name, of.UID)
}
