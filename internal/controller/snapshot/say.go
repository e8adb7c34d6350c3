package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/decide/snapshot"
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
func (s *observedSnapshot) how() []snapshotv1.SourceIndication {
	quiet := ""
	if s.content != nil {
		quiet = s.content.Annotations[annQuiet]
	}
	holds := map[snapshotv1.Indication]bool{
		snapshotv1.Online:          quiet != "",
		snapshotv1.GuestAgent:      quiet == quietFrozen || quiet == quietThawed,
		snapshotv1.NoGuestAgent:    quiet == quietAgentless,
		snapshotv1.QuiesceTimeout:  quiet == quietLate,
		snapshotv1.PartialSnapshot: len(s.left) > 0,
	}
	var out []snapshotv1.SourceIndication
	for _, i := range indications {
		if i.Indication == snapshotv1.PartialSnapshot {
			i.Message += ": " + strings.Join(s.left, "; ")
		}
		if holds[i.Indication] {
			out = append(out, i)
		}
	}
	return out
}

// reportSnapshot writes the status of a snapshot.
func (r *Reconciler) reportSnapshot(ctx context.Context, s *observedSnapshot, reason state.SnapshotReason) (ctrl.Result, error) {
	row := state.OfSnapshot(reason)
	text := row.Text(s.detail(reason))
	old := s.of.Status
	next := snapshotv1.VirtualMachineSnapshotStatus{
		Phase: phases[row.End], ReadyToUse: ptr.To(row.End == state.Well), CreationTime: s.moment(),
		Conditions: r.conditions(old.Conditions, row, text),
	}
	if row.Warn {
		next.Error = r.problem(old.Error, text)
	}
	if s.content != nil {
		next.VirtualMachineSnapshotContentName = ptr.To(s.content.Name)
		was := s.content.Spec.Source.VirtualMachine
		next.SourceUID = ptr.To(was.ObjectMeta.UID)
		lists := &snapshotv1.SnapshotVolumesLists{ExcludedVolumes: s.without(was.Spec.Template.Spec.AllVolumes())}
		for _, p := range s.parts {
			lists.IncludedVolumes = append(lists.IncludedVolumes, p.volume)
		}
		next.SnapshotVolumes = lists
		next.SourceIndications = s.how()
		for _, i := range next.SourceIndications {
			next.Indications = append(next.Indications, i.Indication)
		}
	}
	result := ctrl.Result{}
	switch {
	case row.End == state.GoingOn:
		result.RequeueAfter = look
	case len(s.parts) > 0:
		result.RequeueAfter = lookStored
	}
	if equality.Semantic.DeepEqual(old, next) {
		return result, nil
	}
	err := r.cluster.ApplyStatus(ctx, &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: s.of.Name, UID: s.of.UID}, Status: next})
	if err != nil {
		return ctrl.Result{}, err
	}
	r.tell(s.of, old.Conditions, row, text)
	return result, nil
}

var phases = map[state.End]snapshotv1.Phase{
	state.GoingOn: snapshotv1.InProgress, state.Well: snapshotv1.Succeeded, state.Badly: snapshotv1.Failed,
}

// detail returns what a row's {detail} stands for.
func (s *observedSnapshot) detail(reason state.SnapshotReason) string {
	switch reason {
	case state.SnapshotNoMachine:
		return s.of.Spec.Source.Name
	case state.SnapshotNothing:
		return strings.Join(s.left, "; ")
	case state.SnapshotCutting, state.SnapshotStoring, state.SnapshotFailed, state.SnapshotLost:
		return s.open()
	case state.SnapshotUnsteady:
		return string(s.vm.Status.PrintableStatus)
	case state.SnapshotBegun, state.SnapshotDone, state.RestoreWaiting, state.RestoreMachine, state.RestoreTaken, state.RestoreQueued,
		state.RestoreStopping, state.RestoreRefused, state.RestoreStaging, state.RestoreBlocked, state.RestoreInUse, state.RestoreReplacing,
		state.RestoreStuck, state.RestoreMaking, state.RestoreDone, state.RestoreFailed, state.RestoreWithdrawn:
	}
	return ""
}

// open returns the parts that are not usable, with what the storage says.
func (s *observedSnapshot) open() string {
	var out []string
	for _, p := range s.parts {
		if p.situation() == snapshot.Usable {
			continue
		}
		text := fmt.Sprintf("VolumeSnapshot %s of volume %s is %s", p.name, p.volume, p.situation())
		if t := p.trouble(); t != "" {
			text += ": " + t
		}
		out = append(out, text)
	}
	if len(out) == 0 && s.late() {
		return "the deadline has passed"
	}
	return strings.Join(out, "; ")
}

// conditions returns the three that clients of the group know, with the time of those that did not change.
func (r *Reconciler) conditions(old []snapshotv1.Condition, row state.SnapshotRow, text string) []snapshotv1.Condition {
	next := []snapshotv1.Condition{
		{Type: snapshotv1.ConditionReady, Status: truth(row.End == state.Well)},
		{Type: snapshotv1.ConditionProgressing, Status: truth(row.End == state.GoingOn)},
	}
	if row.End == state.Badly {
		next = append(next, snapshotv1.Condition{Type: snapshotv1.ConditionFailure, Status: corev1.ConditionTrue})
	}
	for i := range next {
		c := &next[i]
		c.Reason, c.Message, c.LastTransitionTime = string(row.Reason), text, metav1.NewTime(r.clock.Now()).Rfc3339Copy()
		for _, was := range old {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return next
}

func (r *Reconciler) problem(old *snapshotv1.Error, text string) *snapshotv1.Error {
	if old != nil && old.Message != nil && *old.Message == text {
		return old
	}
	return &snapshotv1.Error{Time: ptr.To(metav1.NewTime(r.clock.Now()).Rfc3339Copy()), Message: &text}
}

// tell makes an event if the reason is new.
func (r *Reconciler) tell(about client.Object, old []snapshotv1.Condition, row state.SnapshotRow, text string) {
	for _, c := range old {
		if c.Type == snapshotv1.ConditionReady && c.Reason == string(row.Reason) {
			return
		}
	}
	kind := corev1.EventTypeNormal
	if row.Warn {
		kind = corev1.EventTypeWarning
	}
	r.cluster.Event(about, kind, cmp.Or(row.Event, string(row.Reason)), text)
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
