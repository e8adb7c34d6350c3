// Package cron keeps golden images up to date: it asks the source of a DataImportCron on its schedule which version it
// has, has a new one imported by a DataVolume, and makes the managed DataSource and VolumeCloneSource stand for it once it
// is complete. Old imports are removed. Where a storage profile says so, an import is kept as a snapshot and its claim removed.
//
// What to do is decided by internal/decide/cron. The source is asked by a worker in the cron's own namespace, so that its
// credentials stay there; this package never speaks to a source itself.
package cron

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/decide/cron"
)

// Reconciler reconciles DataImportCrons.
type Reconciler struct {
	reader   client.Reader // cached
	live     client.Reader // for snapshots, which not every cluster has: they cannot be watched
	settings config.Reader
	cluster  *cluster.Writer
	clock    clock.PassiveClock
	image    string // that workers run
}

// Setup adds the controller to mgr. Polls run image.
func Setup(mgr ctrl.Manager, writer *cluster.Writer, image string) error {
	r := &Reconciler{
		reader: mgr.GetClient(), live: mgr.GetAPIReader(), settings: config.NewReader(mgr.GetClient()), cluster: writer, clock: clock.RealClock{}, image: image,
	}
	made := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[Label] != "" })
	err := ctrl.NewControllerManagedBy(mgr).
		For(&cdiv1.DataImportCron{}).
		Owns(&corev1.Pod{}).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(maker), builder.WithPredicates(made)).
		Watches(&cdiv1.DataSource{}, handler.EnqueueRequestsFromMapFunc(r.managing)).
		Watches(&cdiv1.VolumeCloneSource{}, handler.EnqueueRequestsFromMapFunc(r.managing)).
		Watches(&cdiv1.StorageProfile{}, handler.EnqueueRequestsFromMapFunc(r.all)).
		Complete(cluster.Settle(r))
	if err != nil {
		return fmt.Errorf("set up the DataImportCron controller: %w", err)
	}
	return nil
}

// maker enqueues the cron that made an object.
func maker(_ context.Context, obj client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[Label]}
	return []reconcile.Request{{NamespacedName: key}}
}

// all returns all crons: the form they keep their imports in may have changed.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.crons(ctx, func(*cdiv1.DataImportCron) bool { return true })
}

// managing returns the crons that manage a name. There are few crons, so they are simply looked through.
func (r *Reconciler) managing(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.crons(ctx, func(c *cdiv1.DataImportCron) bool { return c.Spec.ManagedDataSource == obj.GetName() },
		client.InNamespace(obj.GetNamespace()))
}

func (r *Reconciler) crons(ctx context.Context, which func(*cdiv1.DataImportCron) bool, options ...client.ListOption) []reconcile.Request {
	var all cdiv1.DataImportCronList
	if err := r.reader.List(ctx, &all, options...); err != nil {
		log.FromContext(ctx).Error(err, "list DataImportCrons")
		return nil
	}
	var due []reconcile.Request
	for i := range all.Items {
		if which(&all.Items[i]) {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return due
}

// Reconcile brings one cron a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c, err := cluster.Get[cdiv1.DataImportCron](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || c == nil || c.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	s, err := r.observe(ctx, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := s.facts()
	plan := cron.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rules", plan.Rules, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	noted := s.noted()
	for _, action := range plan.Do {
		if action == cron.NotePoll {
			noted = s.note()
			continue
		}
		if err := r.act(ctx, action, s); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", action, err)
		}
	}
	if err := r.report(ctx, s, plan, noted); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: s.wait(facts)}, nil
}

// look is how often a snapshot that is being taken is checked.
const look = time.Second

// wait returns how long until the source has to be polled or a snapshot checked. Everything else triggers a reconcile.
func (s *seen) wait(f cron.Facts) time.Duration {
	if f.Import == cron.Imported || f.Import == cron.Storing {
		return look
	}
	if f.Unreadable || f.Poll != cron.NoPoll {
		return 0
	}
	return max(s.next.Sub(s.now), time.Second)
}

func (r *Reconciler) act(ctx context.Context, a cron.Action, s *seen) error {
	switch a {
	case cron.StartPoll:
		return r.startPoll(ctx, s)
	case cron.EndPoll:
		return r.cluster.Delete(ctx, s.poll)
	case cron.CreateImport:
		return r.createImport(ctx, s)
	case cron.TakeSnapshot:
		return r.takeSnapshot(ctx, s)
	case cron.Switch:
		return r.switchNames(ctx, s)
	case cron.Collect:
		for _, old := range s.surplus() {
			if err := r.cluster.Delete(ctx, old); err != nil {
				return err
			}
		}
		return nil
	case cron.NotePoll:
	}
	return fmt.Errorf("nobody knows how to %s", a)
}
