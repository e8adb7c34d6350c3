package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// details is what a row's {detail} stands for; the pod and its node where it is not listed.
var details = map[state.MachineReason]func(*run) string{
	state.DiskMissing:         (*run).disksText,
	state.DiskFailed:          (*run).disksText,
	state.DiskRetrying:        (*run).disksText,
	state.DiskForbidden:       (*run).disksText,
	state.FieldsRefused:       func(s *run) string { return s.unsupported },
	state.UsageTypeMissing:    (*run).disksText,
	state.DirectForbidden:     (*run).disksText,
	state.DirectImpossible:    (*run).disksText,
	state.DisksFilling:        (*run).disksText,
	state.DiskInUse:           (*run).disksText,
	state.ConsumerPlacing:     (*run).disksText,
	state.ConsumerUnplaceable: func(s *run) string { return unschedulable(s.consumer) },
	state.LauncherUnplaceable: func(s *run) string { return unschedulable(s.launcher) + s.misplaced },
	state.LauncherStarting:    (*run).startText,
	state.NodeLost:            func(s *run) string { return s.lost },
	state.Cloning:             (*run).cloning,
	state.Keeping:             (*run).holdText,
	state.PausedByUser:        func(*run) string { return "" },
	state.GuestEnded:          func(s *run) string { return s.lastWords().Detail },
	state.GuestFailed:         func(s *run) string { return s.lastWords().Detail },
	state.CrashLoop:           func(s *run) string { return s.lastWords().Detail },
}

func (s *run) detail(r state.MachineReason) string {
	if text := details[r]; text != nil {
		return text(s)
	}
	return s.podText()
}

func (s *run) disksText() string {
	var disks []string
	for _, d := range s.disks {
		if d.why != "" {
			disks = append(disks, d.why)
		}
	}
	return strings.Join(disks, "; ")
}

// startText is what a launcher does before its guest runs.
func (s *run) startText() string {
	for _, d := range s.disks {
		if d.access == machine.LogsIn {
			return d.why + "; " + s.podText()
		}
	}
	return s.podText()
}

func (s *run) podText() string {
	pod := s.launcher
	if pod == nil {
		pod = s.consumer
	}
	switch {
	case pod == nil:
		return ""
	case pod.Spec.NodeName == "":
		return "pod " + pod.Name
	}
	return fmt.Sprintf("pod %s on node %s", pod.Name, pod.Spec.NodeName)
}

// showFacts is what the shown reason depends on, besides what was decided.
func (s *run) showFacts(decided state.MachineReason) machine.ShowFacts {
	f := machine.ShowFacts{Decided: decided, NodeAway: s.away, Ending: situation(s.launcher) == machine.Going,
		Keeping: s.instance.DeletionTimestamp != nil && s.holdsEnd(), Copying: s.cloning() != "",
		Paused: s.paused(), Disk: s.failure(), Server: state.MachineReason(s.lastWords().Fault), Lost: s.lost != "",
		Unoffered: slices.ContainsFunc(s.disks, func(d disk) bool { return d.unoffered })}
	switch {
	case s.arrives() && !launcherpod.Up(s.launcher):
		f.Guest = machine.Arriving
	case s.launcher != nil && s.instance.Spec.ReadinessProbe != nil && !pods.Ready(s.launcher):
		f.Guest = machine.Unready
	}
	switch {
	case s.returns.Waits != "" && slices.Contains(pauses, s.returns.Cause):
		f.Stuck = state.MachineReason(s.returns.Cause)
	case s.returns.Waits != "":
		f.Stuck = state.GuestPaused
	}
	return f
}

// row is what is said of a decision.
func (s *run) row(decided state.MachineReason) state.MachineRow {
	f := s.showFacts(decided)
	shown := machine.Show(f)
	row, detail := state.OfMachine(shown.Reason), s.detail(shown.Reason)
	was := state.OfMachine(decided)
	switch shown.Base {
	case machine.Own:
		if shown.Reason == f.Stuck {
			detail = s.returns.Waits
		}
	case machine.DecidedStatus:
		row.Status, detail = was.Status, s.detail(decided)
	case machine.DecidedRow:
		was.Reason, was.Warn, was.Message = row.Reason, row.Warn, row.Message
		row = was
	}
	row.Message = row.Text(s.instance.Name, detail)
	return row
}

// pauses are the causes of a guest's pause that have a row of their own.
var pauses = []launcherapi.Fault{launcherapi.DiskFull, launcherapi.DiskStalled, launcherapi.DiskCondemned, launcherapi.DiskSourceAway}

// failure is the reason of the first disk that has one of its own; empty: none has.
func (s *run) failure() state.MachineReason {
	for _, d := range s.disks {
		if d.is == machine.Failed && d.reason != "" {
			return d.reason
		}
	}
	return ""
}

// reportInstance writes what is said about an instance.
func (r *Reconciler) reportInstance(ctx context.Context, s *run, reason state.MachineReason, l leaving, u updatePlan) error {
	row := s.row(reason)
	old := s.instance.Status
	next := kubevirt.VirtualMachineInstanceStatus{
		Phase: row.Instance, Reason: string(row.Reason), PhaseTransitionTimestamps: old.PhaseTransitionTimestamps,
		Conditions: r.conditions(old.Conditions, slices.Concat([]kubevirt.Condition{
			{Type: "Ready", Status: truth(row.Ready), Reason: string(row.Reason), Message: row.Message}},
			s.shared(), s.pausedCondition(), l.condition(), u.condition())...),
		MigrationState: s.migration, MigrationMethod: old.MigrationMethod, EvacuationNodeName: l.node, MigratedVolumes: s.migrated(),
	}
	if next.Phase == "" { // a leaving instance keeps the phase it had
		next.Phase = old.Phase
	}
	if p := s.launcher; p != nil {
		next.NodeName = p.Spec.NodeName
		next.QOSClass = qos(p)
		next.ActivePods, next.MigrationMethod = s.active(), s.method()
		s.describe(&next)
	}
	if s.past != nil {
		next.NodeName = s.past.Node
	}
	if next.Phase != old.Phase {
		next.PhaseTransitionTimestamps = append(next.PhaseTransitionTimestamps,
			kubevirt.PhaseTransition{Phase: next.Phase, PhaseTransitionTimestamp: metav1.NewTime(r.clock.Now())})
	}
	for _, d := range s.disks {
		next.VolumeStatus = append(next.VolumeStatus, d.status())
	}
	next.VolumeStatus = s.withCopies(next.VolumeStatus)
	for _, h := range s.hot {
		if h.plan.Phase != "" && !render.IsKeep(h.name) {
			next.VolumeStatus = append(next.VolumeStatus, s.hotStatus(h))
		}
	}
	for _, name := range s.awaited() {
		next.VolumeStatus = append(next.VolumeStatus, s.awaitedStatus(name))
	}
	s.describeVolumes(next.VolumeStatus)
	said := &kubevirt.VirtualMachineInstance{ObjectMeta: objectNamed(&s.instance.ObjectMeta), Status: next}
	r.complain(s.instance, next.VolumeStatus)
	r.tellKept(s)
	return r.say(ctx, s.instance, said, equality.Semantic.DeepEqual(old, next), row, old.Reason != next.Reason)
}

func (s *run) volumesReady() kubevirt.Condition {
	c := kubevirt.Condition{Type: "DataVolumesReady", Status: corev1.ConditionTrue, Reason: "AllDVsReady", Message: "all of its volumes are filled"}
	early := slices.ContainsFunc(s.disks, func(d disk) bool { return d.early })
	if s.worst() != machine.Ready || early {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "NotAllDVsReady", s.disksText()
	}
	return c
}

func (d disk) status() kubevirt.VolumeStatus {
	v := kubevirt.VolumeStatus{Name: d.name, Message: d.why}
	if d.claim != nil {
		name := d.claim.Name
		if d.pv != nil { // the launcher mounts a replacement, and the claim that people know has the same volume
			if moved, ok := replacedclaim.Read(d.pv); ok {
				name = moved.Record.Claim
			}
		}
		v.PersistentVolumeClaimInfo = &kubevirt.ClaimInfo{
			ClaimName: name, AccessModes: d.claim.Spec.AccessModes, VolumeMode: d.claim.Spec.VolumeMode,
			Capacity: d.claim.Status.Capacity, Requests: d.claim.Spec.Resources.Requests,
		}
	}
	return v
}

// reportMachine writes what is said about a machine: what its instance says, if it has one.
func (r *Reconciler) reportMachine(ctx context.Context, w *whole, p machine.Plan, u updatePlan) error {
	row := state.OfMachine(p.State)
	switch {
	case w.made.reason != "" && (p.State == state.VolumeMaking || p.State == state.Terminating):
		row = w.made.row()
	case p.State == state.AsInstance:
		row = w.run.row(machine.Instance(w.run.facts()).State)
	case w.run != nil:
		row = w.run.row(p.State)
	case p.State == state.DiskFailed || p.State == state.DiskRetrying:
		_, text := w.worstVolume()
		row.Message = row.Text(w.vm.Name, text)
	default:
		row.Message = row.Text(w.vm.Name, w.why)
	}
	old := w.vm.Status
	next := kubevirt.VirtualMachineStatus{
		Created: w.run != nil, Ready: row.Ready, PrintableStatus: row.Status, RunStrategy: w.served(p),
		ObservedGeneration: w.vm.Generation, DesiredGeneration: w.vm.Generation, VolumeSnapshotStatuses: w.snapshots, StartFailure: w.failures(row.Ready),
		InstancetypeRef: w.kind.typeRef, PreferenceRef: w.kind.preferenceRef,
		SnapshotInProgress: w.busy.snapshot, RestoreInProgress: w.busy.restore, VolumeUpdateState: w.updateState(),
		Conditions: r.conditions(old.Conditions, append([]kubevirt.Condition{{
			Type: "Ready", Status: truth(row.Ready), Reason: string(row.Reason), Message: row.Message}}, slices.Concat(failureCondition(row), w.sharedConditions(), w.pausedCondition(row), w.updateConditions(u))...)...),
	}
	said := &kubevirt.VirtualMachine{ObjectMeta: objectNamed(&w.vm.ObjectMeta), Status: next}
	// The steps of a start are events of the instance; the machine repeats those that somebody acts on: the last, and what is wrong.
	fresh := reasonOf(old.Conditions) != reasonOf(next.Conditions) && (p.State != state.AsInstance || row.Ready || row.Warn)
	old.StateChangeRequests, old.VolumeRequests = nil, nil // others write them: they are no part of what is said
	return r.say(ctx, w.vm, said, equality.Semantic.DeepEqual(old, next), row, fresh)
}

// failureCondition is the condition of a machine that clients watch for what keeps it from being started; none otherwise.
func failureCondition(row state.MachineRow) []kubevirt.Condition {
	if row.Failure == "" {
		return nil
	}
	return []kubevirt.Condition{{Type: "Failure", Status: corev1.ConditionTrue, Reason: row.Failure, Message: row.Message}}
}

// failures counts instances that ended badly in a row. It is a record, because the instances themselves are gone.
func (w *whole) failures(running bool) *kubevirt.StartFailure {
	f := w.vm.Status.StartFailure
	switch {
	case running:
		return nil
	case w.run == nil || w.instances() != machine.EndedBadly:
		return f
	case f == nil:
		f = &kubevirt.StartFailure{}
	case f.LastFailedVMIUID == w.run.instance.UID:
		return f
	}
	return &kubevirt.StartFailure{ConsecutiveFailCount: f.ConsecutiveFailCount + 1, LastFailedVMIUID: w.run.instance.UID}
}
