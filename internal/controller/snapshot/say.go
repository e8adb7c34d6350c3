package snapshot

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/state"
)

// indications are the indications with their meaning, in the order they are listed.
var indications = []snapshotv1.SourceIndication{
	{Indication: snapshotv1.Online, Message: "the snapshot was taken while the guest ran"},
	{Indication: snapshotv1.GuestAgent, Message: "the guest's filesystems were frozen through its agent while the volumes were cut"},
	{Indication: snapshotv1.NoGuestAgent, Message: "the guest has no agent: its disks are as after a power failure"},
	{Indication: snapshotv1.QuiesceTimeout, Message: "the guest went on before every volume was cut: its disks are as after a power failure"},
	{Indication: snapshotv1.PartialSnapshot, Message: "some volumes that keep data are not in the snapshot"},
}

// how returns which indications hold.
func how(s *snapshotcontent.Snapshot) []snapshotv1.SourceIndication {
	quiet := ""
	if s.Content != nil {
		quiet = s.Content.Annotations[snapshotcontent.AnnQuiet]
	}
	holds := map[snapshotv1.Indication]bool{
		snapshotv1.Online:          quiet != "",
		snapshotv1.GuestAgent:      quiet == snapshotcontent.QuietFrozen || quiet == snapshotcontent.QuietThawed,
		snapshotv1.NoGuestAgent:    quiet == snapshotcontent.QuietAgentless,
		snapshotv1.QuiesceTimeout:  quiet == snapshotcontent.QuietLate,
		snapshotv1.PartialSnapshot: len(s.Left) > 0,
	}
	var out []snapshotv1.SourceIndication
	for _, i := range indications {
		if i.Indication == snapshotv1.PartialSnapshot {
			i.Message += ": " + strings.Join(s.Left, "; ")
		}
		if holds[i.Indication] {
			out = append(out, i)
		}
	}
	return out
}

// report writes the status of a snapshot.
func (r *Reconciler) report(ctx context.Context, s *snapshotcontent.Snapshot, reason state.SnapshotReason) (ctrl.Result, error) {
	row := state.OfSnapshot(reason)
	text := row.Text(detail(s, reason))
	old, said := s.Of.Status, snapshotcontent.Reporter{Cluster: r.cluster, Clock: r.clock}
	next := snapshotv1.VirtualMachineSnapshotStatus{
		Phase: phases[row.End], ReadyToUse: ptr.To(row.End == state.Well), CreationTime: s.Moment(),
		Conditions: said.Conditions(old.Conditions, row, text),
	}
	if row.Warn {
		next.Error = said.Problem(old.Error, text)
	}
	if s.Content != nil {
		next.VirtualMachineSnapshotContentName = ptr.To(s.Content.Name)
		was := s.Content.Spec.Source.VirtualMachine
		next.SourceUID = ptr.To(was.ObjectMeta.UID)
		lists := &snapshotv1.SnapshotVolumesLists{ExcludedVolumes: s.Without(was.Spec.Template.Spec.AllVolumes())}
		for _, p := range s.Parts {
			lists.IncludedVolumes = append(lists.IncludedVolumes, p.Volume)
		}
		next.SnapshotVolumes = lists
		next.SourceIndications = how(s)
		for _, i := range next.SourceIndications {
			next.Indications = append(next.Indications, i.Indication)
		}
	}
	result := ctrl.Result{}
	switch {
	case row.End == state.GoingOn:
		result.RequeueAfter = look
	case len(s.Parts) > 0:
		result.RequeueAfter = LookStored
	}
	if equality.Semantic.DeepEqual(old, next) {
		return result, nil
	}
	err := r.cluster.ApplyStatus(ctx, &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Of.Namespace, Name: s.Of.Name, UID: s.Of.UID}, Status: next})
	if err != nil {
		return ctrl.Result{}, err
	}
	said.Tell(s.Of, old.Conditions, row, text)
	return result, nil
}

var phases = map[state.End]snapshotv1.Phase{
	state.GoingOn: snapshotv1.InProgress, state.Well: snapshotv1.Succeeded, state.Badly: snapshotv1.Failed,
}

// detail returns what a row's {detail} stands for.
func detail(s *snapshotcontent.Snapshot, reason state.SnapshotReason) string {
	switch reason {
	case state.SnapshotNoMachine:
		return s.Of.Spec.Source.Name
	case state.SnapshotNothing:
		return strings.Join(s.Left, "; ")
	case state.SnapshotCutting, state.SnapshotStoring, state.SnapshotFailed, state.SnapshotLost:
		return s.Open()
	case state.SnapshotUnsteady:
		return string(s.Machine.Status.PrintableStatus)
	case state.SnapshotBegun, state.SnapshotDone, state.RestoreWaiting, state.RestoreMachine, state.RestoreTaken, state.RestoreQueued,
		state.RestoreStopping, state.RestoreRefused, state.RestoreStaging, state.RestoreBlocked, state.RestoreInUse, state.RestoreReplacing,
		state.RestoreStuck, state.RestoreMaking, state.RestoreDone, state.RestoreFailed, state.RestoreWithdrawn:
	}
	return ""
}
