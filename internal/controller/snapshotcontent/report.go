package snapshotcontent

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/state"
)

// Reporter makes the conditions and events of snapshots and restores.
type Reporter struct {
	Cluster *cluster.Writer
	Clock   clock.PassiveClock
}

// Conditions returns the three conditions that clients of the group read, with the times of those that did not change.
func (r Reporter) Conditions(old []snapshotv1.Condition, row state.SnapshotRow, text string) []snapshotv1.Condition {
	next := []snapshotv1.Condition{
		{Type: snapshotv1.ConditionReady, Status: truth(row.End == state.Well)},
		{Type: snapshotv1.ConditionProgressing, Status: truth(row.End == state.GoingOn)},
	}
	if row.End == state.Badly {
		next = append(next, snapshotv1.Condition{Type: snapshotv1.ConditionFailure, Status: corev1.ConditionTrue})
	}
	for i := range next {
		c := &next[i]
		c.Reason, c.Message, c.LastTransitionTime = string(row.Reason), text, metav1.NewTime(r.Clock.Now()).Rfc3339Copy()
		for _, was := range old {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return next
}

// Problem returns the error for a status, with the time of its first report.
func (r Reporter) Problem(old *snapshotv1.Error, text string) *snapshotv1.Error {
	if old != nil && old.Message != nil && *old.Message == text {
		return old
	}
	return &snapshotv1.Error{Time: ptr.To(metav1.NewTime(r.Clock.Now()).Rfc3339Copy()), Message: &text}
}

// Tell sends an event if the reason is new.
func (r Reporter) Tell(about client.Object, old []snapshotv1.Condition, row state.SnapshotRow, text string) {
	for _, c := range old {
		if c.Type == snapshotv1.ConditionReady && c.Reason == string(row.Reason) {
			return
		}
	}
	kind := corev1.EventTypeNormal
	if row.Warn {
		kind = corev1.EventTypeWarning
	}
	r.Cluster.Event(about, kind, cmp.Or(row.Event, string(row.Reason)), text)
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
