package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// MigrationFinalizer keeps a migration that somebody deletes until it is cancelled. It is upstream's.
const MigrationFinalizer = "kubevirt.io/migrationJobFinalize"

// moveAgain is how often the launchers are asked while a guest moves: they cannot speak up by themselves.
const moveAgain = time.Second

// move is one migration and everything its next step depends on, read once.
type move struct {
	migration *kubevirt.VirtualMachineInstanceMigration
	run       *run        // nil: there is no instance
	source    *corev1.Pod // nil: there is none
	target    *corev1.Pod
	sent      bool // the source says that its guest is at the target
	before    string
	crowded   string             // why it may not begin yet; empty: it may
	said      launcherapi.Moving // by the source
	heard     launcherapi.Moving // from the target
	late      bool               // no node has had the target for too long
	unnamed   []string           // claims that do not have the volumes yet that their disks were sent to, and why
}

// placeWithin is how long a node is looked for, as upstream has it.
const placeWithin = 5 * time.Minute

// tooLate: no node has had the pod for longer than that.
func (r *Reconciler) tooLate(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName == "" && r.clock.Now().Sub(p.CreationTimestamp.Time) > placeWithin
}

// openMigration returns the migration to look at next: of a machine that does not run if offline, of a guest if not. It returns nil if there is
// nothing to do for it, and adds the finalizer first.
func (r *Reconciler) openMigration(ctx context.Context, req ctrl.Request, offline bool) (*kubevirt.VirtualMachineInstanceMigration, error) {
	m, err := cluster.Get[kubevirt.VirtualMachineInstanceMigration](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || m == nil || (m.Annotations[kubevirt.AnnOffline] == "true") != offline {
		return nil, err
	}
	kept := slices.Contains(m.Finalizers, MigrationFinalizer)
	switch {
	case m.DeletionTimestamp != nil && !kept:
		return nil, nil
	case m.DeletionTimestamp == nil && !kept && !m.Ended():
		return nil, r.cluster.Mark(ctx, m, cluster.Marks{Finalizers: []string{MigrationFinalizer}, Labels: migrationLabels(m)})
	}
	return m, nil
}

// reconcileMigration brings the migration of a guest a step further.
func (r *Reconciler) reconcileMigration(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, err := r.openMigration(ctx, req, false)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	v, err := r.observeMigration(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := v.facts()
	plan := migration.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.actMigration(ctx, a, v); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	switch {
	case plan.State == "" && facts.Cancelled && !slices.Contains(plan.Do, migration.LetGo):
		return ctrl.Result{RequeueAfter: moveAgain}, nil
	case plan.State == "":
		return ctrl.Result{}, nil
	}
	row := state.OfMigration(plan.State)
	if err := r.reportMigration(ctx, moved{migration: v.migration, source: v.source, target: v.target, said: v.said, begun: facts.Told, whole: v.whole()}, row, v.text(row)); err != nil {
		return ctrl.Result{}, err
	}
	if row.Phase == kubevirt.MigrationSucceeded || row.Phase == kubevirt.MigrationFailed {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: moveAgain}, nil
}

func (r *Reconciler) observeMigration(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (*move, error) {
	v := &move{migration: m}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, m.Namespace, m.Spec.VMIName)
	if err != nil || i == nil {
		return v, err
	}
	if v.run, err = r.observe(ctx, i); err != nil {
		return nil, err
	}
	if v.before, err = r.migrationBefore(ctx, m); err != nil {
		return nil, err
	}
	v.pair()
	v.late = r.tooLate(v.target)
	if v.target == nil && !m.Ended() {
		if v.crowded, err = r.crowded(ctx, m); err != nil {
			return nil, err
		}
	}
	if v.target != nil && v.granted() && situation(v.target) == machine.Placed {
		v.heard = r.askMove(ctx, v.target, m.UID)
	}
	if v.source != nil && launcherpod.Orders(v.source).ID == string(m.UID) && launcherpod.Ended(v.source) == "" {
		v.said = r.askMove(ctx, v.source, m.UID)
	}
	if v.target != nil && launcherpod.Orders(v.target).Run && !m.Ended() {
		v.unnamed, err = r.unnamed(ctx, v.target)
	}
	return v, err
}

// pair finds the launchers that the guest moves from and to.
func (v *move) pair() {
	all := slices.Clone(v.run.others)
	if v.run.launcher != nil {
		all = append(all, v.run.launcher)
	}
	name := launcherpod.TargetName(v.run.instance, v.migration.UID)
	if at := slices.IndexFunc(all, func(p *corev1.Pod) bool {
		return p.Name == name && launcherpod.Incoming(p) == v.migration.UID
	}); at >= 0 {
		v.target = all[at]
		all = slices.Delete(all, at, at+1)
	}
	left := func(p *corev1.Pod) bool {
		return v.target != nil && launcherpod.Successor(p, []*corev1.Pod{v.target}) == v.target
	}
	if at := slices.IndexFunc(all, left); at >= 0 {
		v.source, v.sent = all[at], true
		return
	}
	v.source = launcherpod.Present(all)
}

// askMove is what a launcher says about this migration.
func (r *Reconciler) askMove(ctx context.Context, p *corev1.Pod, id types.UID) launcherapi.Moving {
	said, err := r.ask(p)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of the migration", "launcher", p.Name, "error", err.Error())
	}
	if err != nil || said.Move == nil || said.Move.ID != string(id) {
		return launcherapi.Moving{}
	}
	return *said.Move
}

// migrationBefore is the name of a migration of the same instance that was made before this one and has not ended.
func (r *Reconciler) migrationBefore(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (string, error) {
	all, err := r.migrationsOf(ctx, m.Namespace, m.Spec.VMIName)
	if err != nil {
		return "", err
	}
	for _, o := range all {
		if o.UID != m.UID && !o.Ended() && earlier(&o, m) {
			return o.Name, nil
		}
	}
	return "", nil
}

func earlier(a, b *kubevirt.VirtualMachineInstanceMigration) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

func (r *Reconciler) migrationsOf(ctx context.Context, namespace, instance string) ([]kubevirt.VirtualMachineInstanceMigration, error) {
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(m kubevirt.VirtualMachineInstanceMigration) bool { return m.Spec.VMIName != instance }), nil
}

// migrationsAbout brings back the migrations of an instance that have not ended.
func (r *Reconciler) migrationsAbout(name func(client.Object) string) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		if name(obj) == "" {
			return nil
		}
		all, err := r.migrationsOf(ctx, obj.GetNamespace(), name(obj))
		if err != nil {
			log.FromContext(ctx).Error(err, "find the migrations of an instance")
		}
		var due []reconcile.Request
		for i := range all {
			if !all[i].Ended() {
				due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
			}
		}
		return due
	}
}

func (v *move) granted() bool { return v.target.Annotations[render.AnnGo] == "yes" }

func (v *move) facts() migration.Facts {
	f := migration.Facts{Over: v.migration.Ended(), Cancelled: v.migration.DeletionTimestamp != nil, Guest: v.guest(), Target: v.situation(), Late: v.late}
	if v.run != nil && v.run.instance.DeletionTimestamp != nil && !f.Over {
		f.Cancelled = true
	}
	f.Shown, f.Unnamed = f.Over && v.shown(), len(v.unnamed) > 0
	if v.target != nil {
		f.Granted, f.Handed = v.granted(), launcherpod.Orders(v.target).Run
		f.Ran = f.Target == migration.Going && launcherpod.Up(v.target) || launcherpod.Ended(v.target) != "" && launcherpod.LastWords(v.target).Came
	}
	if o := launcherpod.Orders(v.source); o.ID == string(v.migration.UID) {
		f.Told, f.ToldOff = o.To != "", o.Cancel
	}
	switch v.said.Stage {
	case launcherapi.MoveSends:
		f.Word = migration.Sends
	case launcherapi.MoveFailed, launcherapi.MoveStopped:
		f.Word = migration.Keeps
	case launcherapi.MoveWaits, launcherapi.MoveHolds, launcherapi.MoveRuns: // what targets say
	}
	return f
}

// shown: the instance shows how the migration ended, or never had anything to show.
func (v *move) shown() bool {
	if v.run == nil || v.migration.Status.MigrationState == nil || v.migration.Status.MigrationState.SourcePod == "" {
		return true
	}
	at := v.run.instance.Status.MigrationState
	return at == nil || at.MigrationUID != v.migration.UID || at.Completed
}

func (v *move) guest() migration.Guest {
	switch {
	case v.sent:
		return migration.Sent
	case v.source == nil && v.target != nil, v.target != nil && v.source != nil && launcherpod.Ended(v.source) != "":
		return migration.Vanished
	case v.before != "" && v.run != nil, v.crowded != "":
		return migration.Queued
	case v.run == nil || situation(v.source) != machine.Up || v.run.instance.DeletionTimestamp != nil:
		return migration.Unready
	}
	if reason, _ := v.run.fixed(); reason != "" && v.target == nil || v.unlike() != "" {
		return migration.Fixed
	}
	return migration.Here
}

// unlike are the disks that were added or removed since the target was made, which a source that was told already looks after itself.
func (v *move) unlike() string {
	if v.target == nil || v.run == nil || launcherpod.Orders(v.source).ID == string(v.migration.UID) {
		return ""
	}
	has, wants := volumeNames(launcherpod.Machine(v.target).Spec.Volumes), volumeNames(v.run.instance.Spec.Volumes)
	if other := v.run.updates.names(); !maps.Equal(updatedClaims(v.target), other) {
		maps.Copy(other, updatedClaims(v.target))
		return strings.Join(slices.Sorted(maps.Keys(other)), ", ")
	}
	both := func(name string) bool { return slices.Contains(has, name) && slices.Contains(wants, name) }
	return strings.Join(slices.Compact(slices.DeleteFunc(slices.Sorted(slices.Values(slices.Concat(has, wants))), both)), ", ")
}

func volumeNames(volumes []kubevirt.Volume) []string {
	var out []string
	for _, v := range volumes {
		out = append(out, v.Name)
	}
	return out
}

func (v *move) situation() migration.Target {
	switch situation(v.target) {
	case machine.NoPod:
		return migration.NoTarget
	case machine.Waiting:
		return migration.Waiting
	case machine.Unplaceable:
		return migration.Unplaceable
	case machine.Up:
		return migration.Runs
	case machine.Done, machine.Broken:
		return migration.Ended
	case machine.Going:
		return migration.Going
	case machine.Placed:
	}
	switch v.heard.Stage {
	case launcherapi.MoveWaits:
		return migration.Listens
	case launcherapi.MoveHolds:
		return migration.Holds
	case launcherapi.MoveRuns:
		return migration.Runs
	case launcherapi.MoveSends, launcherapi.MoveFailed, launcherapi.MoveStopped: // what sources say
	}
	return migration.Placed
}
