package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Move is one migration and everything its next step depends on, read once.
type Move struct {
	Migration    *kubevirt.VirtualMachineInstanceMigration
	Run          *observed.Instance // nil: there is no instance
	Source       *corev1.Pod        // nil: there is none
	Target       *corev1.Pod
	sent         bool // the source says that its guest is at the target
	before       string
	crowded      string             // why it may not begin yet; empty: it may
	said         launcherapi.Moving // by the source
	targetReport launcherapi.Moving // from the target
	late         bool               // no node has had the target for too long
	unnamed      []string           // claims that do not have the volumes yet that their disks were sent to, and why
}

// Reconcile brings the migration of a guest a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, err := r.Status.Open(ctx, req, false)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	v, err := r.observe(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := v.facts()
	plan := migration.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.act(ctx, a, v); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	switch {
	case plan.State == "" && facts.Cancelled && !slices.Contains(plan.Do, migration.LetGo):
		return ctrl.Result{RequeueAfter: movestatus.Again}, nil
	case plan.State == "":
		return ctrl.Result{}, nil
	}
	row := state.OfMigration(plan.State)
	if err := r.Status.Write(ctx, movestatus.Migration{Migration: v.Migration, Source: v.Source, Target: v.Target, Said: v.said, Begun: facts.Told, Whole: v.whole()}, row, v.Text(row)); err != nil {
		return ctrl.Result{}, err
	}
	if row.Phase == kubevirt.MigrationSucceeded || row.Phase == kubevirt.MigrationFailed {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: movestatus.Again}, nil
}

func (r *Reconciler) observe(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (*Move, error) {
	v := &Move{Migration: m}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Read.Cached, m.Namespace, m.Spec.VMIName)
	if err != nil || i == nil {
		return v, err
	}
	if v.Run, err = r.Read.Instance(ctx, i); err != nil {
		return nil, err
	}
	if v.before, err = r.migrationBefore(ctx, m); err != nil {
		return nil, err
	}
	v.pair()
	v.late = r.Status.TooLate(v.Target)
	if v.Target == nil && !m.Ended() {
		if v.crowded, err = r.Crowded(ctx, m); err != nil {
			return nil, err
		}
	}
	if v.Target != nil && v.granted() && observed.Situation(v.Target) == machine.Placed {
		v.targetReport = r.askMove(ctx, v.Target, m.UID)
	}
	if v.Source != nil && launcherpod.Orders(v.Source).ID == string(m.UID) && launcherpod.Ended(v.Source) == "" {
		v.said = r.askMove(ctx, v.Source, m.UID)
	}
	if v.Target != nil && launcherpod.Orders(v.Target).Run && !m.Ended() {
		v.unnamed, err = r.unnamed(ctx, v.Target)
	}
	return v, err
}

// pair finds the launchers that the guest moves from and to.
func (v *Move) pair() {
	all := slices.Clone(v.Run.Others)
	if v.Run.Launcher != nil {
		all = append(all, v.Run.Launcher)
	}
	name := launcherpod.TargetName(v.Run.Object, v.Migration.UID)
	if at := slices.IndexFunc(all, func(p *corev1.Pod) bool {
		return p.Name == name && launcherpod.Incoming(p) == v.Migration.UID
	}); at >= 0 {
		v.Target = all[at]
		all = slices.Delete(all, at, at+1)
	}
	left := func(p *corev1.Pod) bool {
		return v.Target != nil && launcherpod.Successor(p, []*corev1.Pod{v.Target}) == v.Target
	}
	if at := slices.IndexFunc(all, left); at >= 0 {
		v.Source, v.sent = all[at], true
		return
	}
	v.Source = launcherpod.Present(all)
}

// askMove returns the launcher's report about this migration.
func (r *Reconciler) askMove(ctx context.Context, p *corev1.Pod, id types.UID) launcherapi.Moving {
	said, err := r.Read.Ask(p)
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
	all, err := r.Read.MigrationsOf(ctx, m.Namespace, m.Spec.VMIName)
	if err != nil {
		return "", err
	}
	for _, o := range all {
		if o.UID != m.UID && !o.Ended() && observed.Earlier(&o, m) {
			return o.Name, nil
		}
	}
	return "", nil
}

func (v *Move) granted() bool { return v.Target.Annotations[render.AnnGo] == "yes" }

func (v *Move) facts() migration.Facts {
	f := migration.Facts{Over: v.Migration.Ended(), Cancelled: v.Migration.DeletionTimestamp != nil, Guest: v.guest(), Target: v.situation(), Late: v.late}
	if v.Run != nil && v.Run.Object.DeletionTimestamp != nil && !f.Over {
		f.Cancelled = true
	}
	f.Shown, f.Unnamed = f.Over && v.shown(), len(v.unnamed) > 0
	if v.Target != nil {
		f.Granted, f.Handed = v.granted(), launcherpod.Orders(v.Target).Run
		f.Ran = f.Target == migration.Going && launcherpod.Up(v.Target) || launcherpod.Ended(v.Target) != "" && launcherpod.LastWords(v.Target).Came
	}
	if o := launcherpod.Orders(v.Source); o.ID == string(v.Migration.UID) {
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

// shown reports whether the instance shows how the migration ended, or never showed it.
func (v *Move) shown() bool {
	if v.Run == nil || v.Migration.Status.MigrationState == nil || v.Migration.Status.MigrationState.SourcePod == "" {
		return true
	}
	at := v.Run.Object.Status.MigrationState
	return at == nil || at.MigrationUID != v.Migration.UID || at.Completed
}

func (v *Move) guest() migration.Guest {
	switch {
	case v.sent:
		return migration.Sent
	case v.Source == nil && v.Target != nil, v.Target != nil && v.Source != nil && launcherpod.Ended(v.Source) != "":
		return migration.Vanished
	case v.before != "" && v.Run != nil, v.crowded != "":
		return migration.Queued
	case v.Run == nil || observed.Situation(v.Source) != machine.Up || v.Run.Object.DeletionTimestamp != nil:
		return migration.Unready
	}
	if reason, _ := v.Run.Fixed(); reason != "" && v.Target == nil || v.Unlike() != "" {
		return migration.Fixed
	}
	return migration.Here
}

// Unlike are the disks that were added or removed since the target was made, which a source that was told already looks after itself.
func (v *Move) Unlike() string {
	if v.Target == nil || v.Run == nil || launcherpod.Orders(v.Source).ID == string(v.Migration.UID) {
		return ""
	}
	has, wants := observed.VolumeNames(launcherpod.Machine(v.Target).Spec.Volumes), observed.VolumeNames(v.Run.Object.Spec.Volumes)
	if other := v.Run.Updates.Names(); !maps.Equal(diskstate.UpdatedClaims(v.Target), other) {
		maps.Copy(other, diskstate.UpdatedClaims(v.Target))
		return strings.Join(slices.Sorted(maps.Keys(other)), ", ")
	}
	both := func(name string) bool { return slices.Contains(has, name) && slices.Contains(wants, name) }
	return strings.Join(slices.Compact(slices.DeleteFunc(slices.Sorted(slices.Values(slices.Concat(has, wants))), both)), ", ")
}

func (v *Move) situation() migration.Target {
	switch observed.Situation(v.Target) {
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
	switch v.targetReport.Stage {
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
