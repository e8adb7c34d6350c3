package offlinemove

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// A machine that does not run is moved by cloning the claims that are on its node. internal/decide/migration says in which order, and
// docs/decisions/0019 why.

// claimsGate keeps a pod from being given a node before the copies that it has are to be filled.
const claimsGate = "berth.dev/copies"

// move is a migration of a stopped machine and all facts that its next step depends on, read once.
type move struct {
	migration *kubevirt.VirtualMachineInstanceMigration
	machine   *compose.Machine   // nil: there is none
	run       *observed.Instance // the machine as if it were started; it has the migration's UID
	pod       *corev1.Pod        // that stands for the machine; nil: there is none
	old       []diskstate.Disk   // that are on the node
	copies    []diskstate.Disk   // in their place, in the same order
	away      string             // the node
	held      bool
	late      bool   // no node has had the pod for too long
	fixed     string // why it cannot be moved
	busy      string // what is waited for first
	written   string // who may have written to the old disks since they are copied; empty: nobody
}

// Reconcile brings the migration of a machine that does not run a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, err := r.Status.Open(ctx, req, true)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	v, err := r.observe(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := v.facts()
	plan := migration.Offline(facts)
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
	if err := r.Status.Write(ctx, movestatus.Migration{Migration: m, Target: v.pod, Begun: facts.Held}, state.OfMigration(plan.State), v.text(plan.State)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: movestatus.Again}, nil
}

func (r *Reconciler) observe(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (*move, error) {
	v := &move{migration: m}
	defer func() { v.late = r.Status.TooLate(v.pod) }()
	named := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Spec.VMIName, UID: m.UID}}
	var err error
	if v.pod, err = r.Read.ConsumerOf(ctx, named); err != nil {
		return nil, err
	}
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.Read.Cached, m.Namespace, m.Spec.VMIName)
	if err != nil || vm == nil {
		return v, err
	}
	if v.machine, err = r.Machines.Machine(ctx, vm); err != nil {
		return nil, err
	}
	i := v.machine.Next.DeepCopy()
	if i == nil {
		i = observed.NewInstance(vm) // it has been started
	}
	i.UID = m.UID
	if v.run, err = r.Read.Instance(ctx, i); err != nil {
		return nil, err
	}
	if err := r.Read.ReadClasses(ctx, v.run); err != nil {
		return nil, err
	}
	if err := r.observeOld(ctx, v); err != nil {
		return nil, err
	}
	for _, d := range v.old {
		at := slices.IndexFunc(i.Spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == d.Name })
		c, err := r.Read.Disk(ctx, &v.run.Run, i.Spec.Volumes[at], render.ReplacementName(m.UID, d.Name))
		if err != nil {
			return nil, err
		}
		v.copies = append(v.copies, c)
	}
	if err := r.observeWritten(ctx, v); err != nil {
		return nil, err
	}
	v.held, err = r.holdsAll(ctx, v.pod, v.old)
	return v, err
}

// observeOld finds the disks that are on one node, and what is in the way of moving them.
func (r *Reconciler) observeOld(ctx context.Context, v *move) error {
	for _, d := range v.run.Disks {
		switch {
		case d.Stays() && d.PV != nil && d.PV.Spec.NodeAffinity != nil:
			v.old = append(v.old, d)
		case d.State > machine.Held:
			v.busy = d.Why
		}
		if d.Access == machine.Taken {
			v.busy = d.Why
		}
	}
	if len(v.run.Returning) > 0 {
		v.busy = fmt.Sprintf("PersistentVolumeClaim %s gets the volume that its data moved to before", v.run.Returning[0])
	}
	var why []string
	for _, x := range v.run.Object.Spec.Volumes {
		if x.HostDisk != nil {
			why = append(why, state.OfFixed(state.CauseHostDisk).Text(x.Name, ""))
		}
	}
	for _, d := range v.old {
		if cause, detail := v.run.Rooted(d); cause != "" {
			why = append(why, state.OfFixed(cause).Text(d.Name, detail))
		}
		on, err := nodeselect.In(ctx, r.Read.Cached, d.PV.Spec.NodeAffinity.Required)
		if err != nil {
			return err
		}
		if len(on) == 0 {
			why = append(why, observed.LostText(d, nil))
			continue
		}
		if len(on) == 1 && v.away == "" {
			v.away = on[0].Name
		}
	}
	switch {
	case !r.Read.Data:
		why = append(why, "nothing here clones claims: the kinds of the data side are not installed")
	case len(v.old) == 0 && v.busy == "":
		why = append(why, "none of its disks is on one node alone; start it, and it goes where there is room")
	}
	v.fixed = strings.Join(why, "; ")
	return nil
}

// holdsAll: the pod is among the holders of every one of the disks, and lets others read them.
func (r *Reconciler) holdsAll(ctx context.Context, p *corev1.Pod, disks []diskstate.Disk) (bool, error) {
	for _, d := range disks {
		if p == nil {
			return false, nil
		}
		holders, err := r.Read.Records.Holders(ctx, d.ID)
		if err != nil {
			return false, err
		}
		mine := func(h accessv1.Holder) bool { return h.PodUID == p.UID && h.Mode == accessv1.ReadShared }
		if !slices.ContainsFunc(holders, mine) {
			return false, nil
		}
	}
	return p != nil, nil
}

func (v *move) facts() migration.OfflineFacts {
	f := migration.OfflineFacts{Over: v.migration.Ended(), Cancelled: v.migration.DeletionTimestamp != nil,
		Held: v.held, Late: v.late, Fixed: v.fixed != "", Busy: v.busy != "", Runs: v.machine != nil && v.machine.Instance != nil, Copies: v.far(), Written: v.written != ""}
	if v.machine == nil || v.machine.Object.DeletionTimestamp != nil {
		f.Cancelled = f.Cancelled || !f.Over
	}
	f.Gated = v.pod != nil && len(v.pod.Spec.SchedulingGates) > 0
	switch observed.Situation(v.pod) {
	case machine.NoPod:
	case machine.Waiting:
		f.Pod = migration.Waiting
	case machine.Unplaceable:
		f.Pod = migration.Unplaceable
	case machine.Placed, machine.Up:
		f.Pod = migration.Placed
	case machine.Done, machine.Broken:
		f.Pod = migration.Ended
	case machine.Going:
		f.Pod = migration.Going
	}
	if f.Copies == migration.Partly || f.Copies == migration.Recorded {
		f.Fixed = false // what the old volumes are like is no matter any more
	}
	return f
}

// far returns the state of the copies.
func (v *move) far() migration.Copies {
	filled, recorded := 0, 0
	for _, c := range v.copies {
		switch {
		case c.Claim == nil:
			return migration.NoCopies
		case c.State == machine.Ready && c.PV != nil:
			filled++
		}
		if c.PV != nil && c.PV.Annotations[replacedclaim.Annotation] != "" {
			recorded++
		}
	}
	switch all := len(v.copies); {
	case all == 0:
		return migration.NoCopies
	case recorded == all:
		return migration.Recorded
	case filled < all:
		return migration.Filling
	case recorded > 0:
		return migration.Partly
	}
	return migration.Filled
}

func (v *move) text(reason state.MigrationReason) string {
	switch reason { //nolint:exhaustive // of the others the copies say why
	case state.MigrationImmovable:
		return v.fixed
	case state.MigrationQueued:
		return v.busy
	case state.MigrationWritten:
		return v.written
	case state.MigrationUnplaceable, state.MigrationUnplaced:
		return observed.Unschedulable(v.pod)
	case state.MigrationStarted, state.MigrationAborted, state.MigrationTargetFailed:
		return "VirtualMachine " + v.migration.Spec.VMIName
	case state.MigrationCopied:
		if v.pod == nil {
			return ""
		}
		return fmt.Sprintf("node %s; its claims have them under their own names in a moment", v.pod.Spec.NodeName)
	}
	var why []string
	for _, c := range v.copies {
		if c.Why != "" {
			why = append(why, c.Why)
		}
	}
	return strings.Join(why, "; ")
}

func (r *Reconciler) act(ctx context.Context, a migration.Action, v *move) error {
	switch a {
	case migration.StartMover:
		return r.startMover(ctx, v)
	case migration.Hold:
		return r.Grants.Take(ctx, grant.Pod{Pod: v.pod, Instance: v.run.Object}, reading(v.old))
	case migration.MakeCopies:
		return r.makeCopies(ctx, v)
	case migration.Place:
		next := v.pod.DeepCopy()
		next.Spec.SchedulingGates = nil
		return r.Cluster.Change(ctx, v.pod, next)
	case migration.Record:
		return r.recordCopies(ctx, v)
	case migration.StopMover:
		return r.Cluster.Delete(ctx, v.pod)
	case migration.DropLeft:
		return r.dropCopies(ctx, v)
	case migration.LetGo:
		return r.Cluster.Mark(ctx, v.migration, cluster.Marks{Labels: movestatus.Labels(v.migration)})
	case migration.StartTarget, migration.Grant, migration.TellSource, migration.CallOff, migration.HandOver, migration.StopSource,
		migration.StopTarget, migration.DropKeys:
	}
	return fmt.Errorf("%s is not an action on the migration of a machine that does not run", a)
}

// startMover makes the pod that stands for the machine: a consumer with the copies in the place of the claims that they are of.
func (r *Reconciler) startMover(ctx context.Context, v *move) error {
	next := v.run.Pods
	next.Replaced, next.Away = map[string]string{}, v.away
	for _, d := range v.old {
		next.Replaced[d.Name] = render.ReplacementName(v.migration.UID, d.Name)
	}
	pod, err := next.Pod(render.Consumer)
	if err != nil {
		return err
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(v.migration, kubevirt.GroupVersion.WithKind("VirtualMachineInstanceMigration"))}
	pod.Finalizers = []string{render.LauncherEnd} // what it holds is freed when it has ended
	pod.Annotations[render.AnnFrom] = " " + v.away
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: claimsGate}}
	pod.Spec.NodeSelector = movestatus.Narrowed(pod.Spec.NodeSelector, v.migration.Spec.AddedNodeSelector)
	return r.Cluster.Create(ctx, pod)
}

// makeCopies makes a claim like each of the old ones, to be cloned from it.
func (r *Reconciler) makeCopies(ctx context.Context, v *move) error {
	for n, d := range v.old {
		if v.copies[n].Claim != nil {
			continue
		}
		c := handover.Replacement(v.migration, d)
		from := &cdiv1.VolumeCloneSource{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.migration, kubevirt.GroupVersion.WithKind("VirtualMachineInstanceMigration"))}},
			Spec: cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: d.Claim.Name}}}
		there, err := cluster.Get[cdiv1.VolumeCloneSource](ctx, r.Read.Cached, from.Namespace, from.Name)
		switch {
		case err == nil && there == nil:
			err = r.Cluster.Create(ctx, from)
		case err == nil && !cluster.OwnedBy(there, v.migration.UID):
			err = fmt.Errorf("VolumeCloneSource %s is not the migration's own: delete it, so that the right one can be made", from.Name)
		}
		if err != nil {
			return err
		}
		group := cdiv1.SchemeGroupVersion.Group
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: cdiv1.VolumeCloneSourceRef, Name: from.Name}
		if err := r.Cluster.Create(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// recordCopies records that the copies have the data. The pod has had the copies since before that, so they get their names when
// it has ended and not earlier: until then the record says that this migration is done.
func (r *Reconciler) recordCopies(ctx context.Context, v *move) error {
	if v.pod != nil {
		if err := r.Grants.Take(ctx, grant.Pod{Pod: v.pod, Instance: v.run.Object}, v.copies); err != nil {
			return err
		}
	}
	for n, d := range v.old {
		if err := r.HandOver.Record(ctx, v.run.Object, d.Claim.Name, v.copies[n].Claim.Name, false); err != nil {
			return err
		}
	}
	return nil
}

// dropCopies deletes what the migration leaves over.
func (r *Reconciler) dropCopies(ctx context.Context, v *move) error {
	for _, d := range v.old {
		if !r.Read.Data {
			break
		}
		from, err := cluster.Get[cdiv1.VolumeCloneSource](ctx, r.Read.Cached, v.migration.Namespace, render.ReplacementName(v.migration.UID, d.Name))
		if err != nil {
			return err
		}
		if from != nil && cluster.OwnedBy(from, v.migration.UID) {
			if err := r.Cluster.Delete(ctx, from); err != nil {
				return err
			}
		}
	}
	return r.HandOver.DropLeft(ctx, v.migration)
}
