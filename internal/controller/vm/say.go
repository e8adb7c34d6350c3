package vm

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/state"
)

// report writes the status of a machine: that of its instance, if it has one.
func (r *Reconciler) report(ctx context.Context, w *compose.Machine, p machine.Plan, u volumeupdate.Plan) error {
	row := state.OfMachine(p.State)
	switch {
	case w.Made.Reason != "" && (p.State == state.VolumeMaking || p.State == state.Terminating):
		row = w.Made.Row()
	case p.State == state.AsInstance:
		row = report.Row(w.Instance, machine.Instance(w.Instance.Facts()).State)
	case w.Instance != nil:
		row = report.Row(w.Instance, p.State)
	case p.State == state.DiskFailed || p.State == state.DiskRetrying:
		_, text := w.WorstVolume()
		row.Message = row.Text(w.Object.Name, text)
	default:
		row.Message = row.Text(w.Object.Name, w.Why)
	}
	old := w.Object.Status
	next := kubevirt.VirtualMachineStatus{
		Created: w.Instance != nil, Ready: row.Ready, PrintableStatus: row.Status, RunStrategy: served(w, p),
		ObservedGeneration: w.Object.Generation, DesiredGeneration: w.Object.Generation, VolumeSnapshotStatuses: w.Snapshots, StartFailure: failures(w, row.Ready),
		InstancetypeRef: w.Kind.TypeRef, PreferenceRef: w.Kind.PreferenceRef,
		SnapshotInProgress: w.Busy.Snapshot, RestoreInProgress: w.Busy.Restore, VolumeUpdateState: updateState(w),
		ChangedBlockTracking: &kubevirt.ChangedBlockTrackingStatus{State: kubevirt.ChangedBlockTrackingEnabled},
		Conditions: r.Report.Conditions(old.Conditions, append([]kubevirt.Condition{{
			Type: "Ready", Status: report.Truth(row.Ready), Reason: string(row.Reason), Message: row.Message}}, slices.Concat(failureCondition(row), sharedConditions(w), pausedCondition(w, row), updateConditions(w, u))...)...),
	}
	said := &kubevirt.VirtualMachine{ObjectMeta: report.Named(&w.Object.ObjectMeta), Status: next}
	// The steps of a start are events of the instance; the machine repeats those that a user can act on: the last one, and warnings.
	fresh := report.ReasonOf(old.Conditions) != report.ReasonOf(next.Conditions) && (p.State != state.AsInstance || row.Ready || row.Warn)
	old.StateChangeRequests, old.VolumeRequests = nil, nil // others write them: they are no part of what is said
	return r.Report.Say(ctx, w.Object, said, equality.Semantic.DeepEqual(old, next), row, fresh)
}

// failureCondition is the condition of a machine that clients watch for what keeps it from being started; none otherwise.
func failureCondition(row state.MachineRow) []kubevirt.Condition {
	if row.Failure == "" {
		return nil
	}
	return []kubevirt.Condition{{Type: "Failure", Status: corev1.ConditionTrue, Reason: row.Failure, Message: row.Message}}
}

// failures counts instances that ended badly in a row. It is a record, because the instances themselves are gone.
func failures(w *compose.Machine, running bool) *kubevirt.StartFailure {
	f := w.Object.Status.StartFailure
	switch {
	case running:
		return nil
	case w.Instance == nil || w.Instances() != machine.EndedBadly:
		return f
	case f == nil:
		f = &kubevirt.StartFailure{}
	case f.LastFailedVMIUID == w.Instance.Object.UID:
		return f
	}
	return &kubevirt.StartFailure{ConsecutiveFailCount: f.ConsecutiveFailCount + 1, LastFailedVMIUID: w.Instance.Object.UID}
}
