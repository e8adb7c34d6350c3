package machine

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
	"github.com/berth-vm/berth/internal/controller/nodeselect"
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

// offline is a migration of a machine that does not run, and everything its next step depends on, read once.
type offline struct {
	migration *kubevirt.VirtualMachineInstanceMigration
	machine   *whole      // nil: there is none
	run       *run        // the machine as if it were started; it has the migration's UID
	pod       *corev1.Pod // that stands for the machine; nil: there is none
	old       []disk      // that are on the node
	copies    []disk      // in their place, in the same order
	away      string      // the node
	held      bool
	late      bool   // no node has had the pod for too long
	fixed     string // why it cannot be moved
	busy      string // what is waited for first
	written   string // who may have written to the old disks since they are copied; empty: nobody
}

// isMover reports whether the pod stands for a machine whose disks are being copied. A forged pod only changes a message.
func isMover(p *corev1.Pod) bool {
	o := metav1.GetControllerOf(p)
	return o != nil && o.Kind == "VirtualMachineInstanceMigration" && p.Annotations[render.AnnConsumer] != ""
}

// reconcileOffline brings the migration of a machine that does not run a step further.
func (r *Reconciler) reconcileOffline(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, err := r.openMigration(ctx, req, true)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	v, err := r.observeOffline(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := v.facts()
	plan := migration.Offline(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.actOffline(ctx, a, v); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	switch {
	case plan.State == "" && facts.Cancelled && !slices.Contains(plan.Do, migration.LetGo):
		return ctrl.Result{RequeueAfter: moveAgain}, nil
	case plan.State == "":
		return ctrl.Result{}, nil
	}
	if err := r.reportMigration(ctx, moved{migration: m, target: v.pod, begun: facts.Held}, state.OfMigration(plan.State), v.text(plan.State)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: moveAgain}, nil
}

func (r *Reconciler) observeOffline(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (*offline, error) {
	v := &offline{migration: m}
	defer func() { v.late = r.tooLate(v.pod) }()
	named := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Spec.VMIName, UID: m.UID}}
	var err error
	if v.pod, err = r.consumerOf(ctx, named); err != nil {
		return nil, err
	}
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, m.Namespace, m.Spec.VMIName)
	if err != nil || vm == nil {
		return v, err
	}
	if v.machine, err = r.observeMachine(ctx, vm); err != nil {
		return nil, err
	}
	i := v.machine.next.DeepCopy()
	if i == nil {
		i = newInstance(vm) // it has been started
	}
	i.UID = m.UID
	if v.run, err = r.observe(ctx, i); err != nil {
		return nil, err
	}
	if err := r.readClasses(ctx, v.run); err != nil {
		return nil, err
	}
	if err := r.observeOld(ctx, v); err != nil {
		return nil, err
	}
	for _, d := range v.old {
		at := slices.IndexFunc(i.Spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == d.name })
		c, err := r.disk(ctx, &v.run.base, i.Spec.Volumes[at], render.ReplacementName(m.UID, d.name))
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
func (r *Reconciler) observeOld(ctx context.Context, v *offline) error {
	for _, d := range v.run.disks {
		switch {
		case d.stays() && d.pv != nil && d.pv.Spec.NodeAffinity != nil:
			v.old = append(v.old, d)
		case d.is > machine.Held:
			v.busy = d.why
		}
		if d.access == machine.Taken {
			v.busy = d.why
		}
	}
	if len(v.run.returning) > 0 {
		v.busy = fmt.Sprintf("PersistentVolumeClaim %s gets the volume that its data moved to before", v.run.returning[0])
	}
	var why []string
	for _, x := range v.run.instance.Spec.Volumes {
		if x.HostDisk != nil {
			why = append(why, state.OfFixed(state.CauseHostDisk).Text(x.Name, ""))
		}
	}
	for _, d := range v.old {
		if cause, detail := v.run.rooted(d); cause != "" {
			why = append(why, state.OfFixed(cause).Text(d.name, detail))
		}
		on, err := nodeselect.In(ctx, r.reader, d.pv.Spec.NodeAffinity.Required)
		if err != nil {
			return err
		}
		if len(on) == 0 {
			why = append(why, lostText(d, nil))
			continue
		}
		if len(on) == 1 && v.away == "" {
			v.away = on[0].Name
		}
	}
	switch {
	case !r.data:
		why = append(why, "nothing here clones claims: the kinds of the data side are not installed")
	case len(v.old) == 0 && v.busy == "":
		why = append(why, "none of its disks is on one node alone; start it, and it goes where there is room")
	}
	v.fixed = strings.Join(why, "; ")
	return nil
}

// holdsAll: the pod is among the holders of every one of the disks, and lets others read them.
func (r *Reconciler) holdsAll(ctx context.Context, p *corev1.Pod, disks []disk) (bool, error) {
	for _, d := range disks {
		if p == nil {
			return false, nil
		}
		holders, err := r.records.Holders(ctx, d.id)
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

func (v *offline) facts() migration.OfflineFacts {
	f := migration.OfflineFacts{Over: v.migration.Ended(), Cancelled: v.migration.DeletionTimestamp != nil,
		Held: v.held, Late: v.late, Fixed: v.fixed != "", Busy: v.busy != "", Runs: v.machine != nil && v.machine.run != nil, Copies: v.far(), Written: v.written != ""}
	if v.machine == nil || v.machine.vm.DeletionTimestamp != nil {
		f.Cancelled = f.Cancelled || !f.Over
	}
	f.Gated = v.pod != nil && len(v.pod.Spec.SchedulingGates) > 0
	switch situation(v.pod) {
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

// far is how far the copies are.
func (v *offline) far() migration.Copies {
	filled, recorded := 0, 0
	for _, c := range v.copies {
		switch {
		case c.claim == nil:
			return migration.NoCopies
		case c.is == machine.Ready && c.pv != nil:
			filled++
		}
		if c.pv != nil && c.pv.Annotations[replacedclaim.Annotation] != "" {
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

func (v *offline) text(reason state.MigrationReason) string {
	switch reason { //nolint:exhaustive // of the others the copies say why
	case state.MigrationImmovable:
		return v.fixed
	case state.MigrationQueued:
		return v.busy
	case state.MigrationWritten:
		return v.written
	case state.MigrationUnplaceable, state.MigrationUnplaced:
		return unschedulable(v.pod)
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
		if c.why != "" {
			why = append(why, c.why)
		}
	}
	return strings.Join(why, "; ")
}

func (r *Reconciler) actOffline(ctx context.Context, a migration.Action, v *offline) error {
	switch a {
	case migration.StartMover:
		return r.startMover(ctx, v)
	case migration.Hold:
		return r.take(ctx, taker{pod: v.pod, instance: v.run.instance}, reading(v.old))
	case migration.MakeCopies:
		return r.makeCopies(ctx, v)
	case migration.Place:
		next := v.pod.DeepCopy()
		next.Spec.SchedulingGates = nil
		return r.cluster.Change(ctx, v.pod, next)
	case migration.Record:
		return r.recordCopies(ctx, v)
	case migration.StopMover:
		return r.cluster.Delete(ctx, v.pod)
	case migration.DropLeft:
		return r.dropCopies(ctx, v)
	case migration.LetGo:
		return r.cluster.Mark(ctx, v.migration, cluster.Marks{})
	case migration.StartTarget, migration.Grant, migration.TellSource, migration.CallOff, migration.HandOver, migration.StopSource,
		migration.StopTarget, migration.DropKeys:
	}
	return fmt.Errorf("%s is not an action on the migration of a machine that does not run", a)
}

// startMover makes the pod that stands for the machine: a consumer with the copies in the place of the claims that they are of.
func (r *Reconciler) startMover(ctx context.Context, v *offline) error {
	next := v.run.pods
	next.Replaced, next.Away = map[string]string{}, v.away
	for _, d := range v.old {
		next.Replaced[d.name] = render.ReplacementName(v.migration.UID, d.name)
	}
	pod, err := next.Pod(render.Consumer)
	if err != nil {
		return err
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(v.migration, kubevirt.GroupVersion.WithKind("VirtualMachineInstanceMigration"))}
	pod.Finalizers = []string{render.LauncherEnd} // what it holds is freed when it has ended
	pod.Annotations[render.AnnFrom] = " " + v.away
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: claimsGate}}
	pod.Spec.NodeSelector = narrowed(pod.Spec.NodeSelector, v.migration.Spec.AddedNodeSelector)
	return r.cluster.Create(ctx, pod)
}

// makeCopies makes a claim like each of the old ones, to be cloned from it.
func (r *Reconciler) makeCopies(ctx context.Context, v *offline) error {
	for n, d := range v.old {
		if v.copies[n].claim != nil {
			continue
		}
		c := replacement(v.migration, d)
		from := &cdiv1.VolumeCloneSource{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.migration, kubevirt.GroupVersion.WithKind("VirtualMachineInstanceMigration"))}},
			Spec: cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: d.claim.Name}}}
		there, err := cluster.Get[cdiv1.VolumeCloneSource](ctx, r.reader, from.Namespace, from.Name)
		switch {
		case err == nil && there == nil:
			err = r.cluster.Create(ctx, from)
		case err == nil && !cluster.OwnedBy(there, v.migration.UID):
			err = fmt.Errorf("VolumeCloneSource %s is not the migration's own: delete it, so that the right one can be made", from.Name)
		}
		if err != nil {
			return err
		}
		group := cdiv1.SchemeGroupVersion.Group
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: cdiv1.VolumeCloneSourceRef, Name: from.Name}
		if err := r.cluster.Create(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// recordCopies writes down that the copies have the data. The pod has them from before that on, so that they get their names when it has
// ended and not earlier: until then the record is what says that this migration is done.
func (r *Reconciler) recordCopies(ctx context.Context, v *offline) error {
	if v.pod != nil {
		if err := r.take(ctx, taker{pod: v.pod, instance: v.run.instance}, v.copies); err != nil {
			return err
		}
	}
	for n, d := range v.old {
		if err := r.recordOne(ctx, v.run.instance, d.claim.Name, v.copies[n].claim.Name, false); err != nil {
			return err
		}
	}
	return nil
}

// dropCopies deletes what the migration leaves over.
func (r *Reconciler) dropCopies(ctx context.Context, v *offline) error {
	for _, d := range v.old {
		if !r.data {
			break
		}
		from, err := cluster.Get[cdiv1.VolumeCloneSource](ctx, r.reader, v.migration.Namespace, render.ReplacementName(v.migration.UID, d.name))
		if err != nil {
			return err
		}
		if from != nil && cluster.OwnedBy(from, v.migration.UID) {
			if err := r.cluster.Delete(ctx, from); err != nil {
				return err
			}
		}
	}
	return r.dropLeft(ctx, v.migration)
}
