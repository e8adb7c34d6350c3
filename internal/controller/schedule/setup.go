// Package schedule backs machines up, or takes snapshots of them, on the schedules of users (MachineSchedule), and removes old ones that it made.
// internal/decide/schedule decides for one machine; this package observes, carries out and reports.
//
// It makes VirtualMachineBackups and VirtualMachineSnapshots, as a user would, and leaves them to their own controllers. What a schedule made has a name
// that is a digest of the schedule's UID, the machine's UID and the moment: that is how it is found again after a crash, and what proves that it may
// be deleted. Labels prove nothing.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/metrics"
	"github.com/berth-vm/berth/internal/decide/schedule"
	"github.com/berth-vm/berth/internal/state"
)

// Reconciler reconciles schedules.
type Reconciler struct {
	reader   client.Reader // cached
	live     client.Reader
	cluster  *cluster.Writer
	clock    clock.PassiveClock
	settings config.Reader
	records  *diskaccess.Records
	image    string // that workers run
}

// look is how often a schedule is looked at of which something goes on.
const look = 5 * time.Second

// Setup adds the controller to mgr. The workers that remove backups run image.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, records *diskaccess.Records, image string) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, clock: clock.RealClock{},
		settings: config.NewReader(mgr.GetClient()), records: records, image: image}
	beside := handler.EnqueueRequestsFromMapFunc(r.beside)
	made := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[Label] != "" }))
	if err := ctrlmetrics.Registry.Register(metrics.Schedules{Reader: mgr.GetClient(), Now: time.Now}); err != nil {
		return fmt.Errorf("register the metrics of schedules: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("schedule").
		For(&accessv1.MachineSchedule{}).
		Owns(&corev1.Pod{}).
		Watches(&backupv1.VirtualMachineBackup{}, beside, made).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, beside, made).
		Watches(&kubevirt.VirtualMachine{}, beside, builder.WithPredicates(comesAndGoes())).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up schedules: %w", err)
	}
	return nil
}

// comesAndGoes lets through what changes which machines a schedule is about.
func comesAndGoes() predicate.Predicate {
	return predicate.Or(predicate.LabelChangedPredicate{}, predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
}

// beside brings back the schedules of a namespace.
func (r *Reconciler) beside(ctx context.Context, obj client.Object) []reconcile.Request {
	var all accessv1.MachineScheduleList
	if err := r.reader.List(ctx, &all, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list schedules")
		return nil
	}
	due := make([]reconcile.Request, 0, len(all.Items))
	for i := range all.Items {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return due
}

// Reconcile takes one schedule a step further, for each of its machines.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Not the cache: it may not know yet what was begun.
	of, err := cluster.Get[accessv1.MachineSchedule](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	s, err := r.observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	var failed []error
	for _, m := range s.machines {
		// What is wrong with one machine does not keep the others from being backed up.
		failed = append(failed, r.step(ctx, s, m))
	}
	failed = append(failed, r.noteBegun(ctx, s), r.report(ctx, s))
	return ctrl.Result{RequeueAfter: s.rest()}, errors.Join(failed...)
}

// step does what is due for one machine.
func (r *Reconciler) step(ctx context.Context, s *seen, m *machine) error {
	p := schedule.Decide(m.facts(s))
	m.say = p.State
	for _, a := range p.Do {
		if err := r.act(ctx, a, s, m); err != nil {
			var other *instead
			if errors.As(err, &other) {
				m.say, m.detail = other.say, other.detail
				break
			}
			return fmt.Errorf("%s of %s: %w", a, m.name, err)
		}
	}
	old := schedule.DecideRemoval(m.old(s))
	m.removal = old.State
	for _, a := range old.Do {
		err := r.remove(ctx, a, s, m)
		if errors.Is(err, cluster.ErrStale) {
			break // another pod has the claim, or the cache is behind: it is looked at again
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", a, m.name, err)
		}
	}
	return nil
}

// instead is an error that ends a reconciliation. Its reason is reported in place of the decided one.
type instead struct {
	say    state.ScheduleReason
	detail string
}

func (i *instead) Error() string { return i.detail }
