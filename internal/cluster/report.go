package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/state"
)

// Status is a volume's state to report.
type Status struct {
	State    state.State
	Bound    bool // the claim is bound
	Progress cdiv1.DataVolumeProgress
	Restarts int32
}

// Report writes the volume's status if it changed, and an event if the reason changed. It reads the old status only to compare.
func (w *Writer) Report(ctx context.Context, v *cdiv1.DataVolume, s Status) error {
	old := w.lastSaid(v)
	next := cdiv1.DataVolumeStatus{
		ClaimName: s.State.Claim, Phase: s.State.Phase, Progress: s.Progress, RestartCount: s.Restarts,
		Conditions: w.conditions(old.Conditions, s),
	}
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	said := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, UID: v.UID}, Status: next,
	}
	if err := w.ApplyStatus(ctx, said); err != nil {
		return err
	}
	w.said.Store(client.ObjectKeyFromObject(v), reportedStatus{about: v.ResourceVersion, status: next})
	if news(old, next) {
		w.Tell(v, s.State)
	}
	return nil
}

// reportedStatus is a status that was reported about a volume as it was in one version.
type reportedStatus struct {
	about  string
	status cdiv1.DataVolumeStatus
}

// lastSaid returns the volume's status, or a later report about the same version of the volume: otherwise a stale cache would
// cause the same event twice.
func (w *Writer) lastSaid(v *cdiv1.DataVolume) cdiv1.DataVolumeStatus {
	if last, ok := w.said.Load(client.ObjectKeyFromObject(v)); ok && last.(reportedStatus).about == v.ResourceVersion {
		return last.(reportedStatus).status
	}
	return v.Status
}

// Forget drops what is remembered of a volume that is gone.
func (w *Writer) Forget(volume types.NamespacedName) { w.said.Delete(volume) }

// Tell makes an event of an object's state, unless it was the last one made: the object may have been written by another client
// meanwhile, and a cache that lags has that version with the earlier state.
func (w *Writer) Tell(v client.Object, s state.State) {
	if v.GetUID() != "" && w.told.again(v.GetUID(), string(s.Reason)+": "+s.Text()) {
		return
	}
	kind := corev1.EventTypeNormal
	if s.Warn {
		kind = corev1.EventTypeWarning
	}
	for _, reason := range []state.Reason{s.Reason, s.Told} {
		if reason != "" {
			w.events.Eventf(v, nil, kind, string(reason), "Reconcile", "%s", s.Text())
		}
	}
}

// news reports whether the change deserves an event. Progress and changed numbers in a message do not.
func news(old, next cdiv1.DataVolumeStatus) bool {
	return old.Phase != next.Phase || reasons(old) != reasons(next)
}

func reasons(s cdiv1.DataVolumeStatus) string {
	all := ""
	for _, c := range s.Conditions {
		all += fmt.Sprint(c.Type, c.Status, c.Reason, ";")
	}
	return all
}

func (w *Writer) conditions(old []cdiv1.DataVolumeCondition, s Status) []cdiv1.DataVolumeCondition {
	return []cdiv1.DataVolumeCondition{
		w.condition(old, bound(s)),
		w.condition(old, cdiv1.DataVolumeCondition{
			Type: cdiv1.DataVolumeRunning, Status: truth(s.State.Run == state.Moving), Reason: s.State.RunReason(),
			Message: s.State.RunMessage(),
		}),
		w.condition(old, cdiv1.DataVolumeCondition{
			Type: cdiv1.DataVolumeReady, Status: truth(s.State.Ready), Reason: s.State.ReadyReason(),
			Message: s.State.Text(),
		}),
	}
}

func bound(s Status) cdiv1.DataVolumeCondition {
	c := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionFalse}
	switch {
	case s.State.Bound != state.AsClaim && (!s.Bound || s.State.Bound != state.NoSource): // a claim that is bound stays so without its source
		c.Reason, c.Message = string(s.State.Bound), s.State.Text()
	case s.Bound:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "Bound", fmt.Sprintf("PVC %s Bound", s.State.Claim)
	default:
		c.Reason, c.Message = "Pending", fmt.Sprintf("PVC %s Pending", s.State.Claim)
	}
	return c
}

// condition returns next with the times of the old condition of its type if nothing changed.
func (w *Writer) condition(old []cdiv1.DataVolumeCondition, next cdiv1.DataVolumeCondition) cdiv1.DataVolumeCondition {
	now := metav1.NewTime(w.clock.Now()).Rfc3339Copy()
	next.LastTransitionTime, next.LastHeartbeatTime = now, now
	for _, c := range old {
		if c.Type != next.Type {
			continue
		}
		if c.Status == next.Status {
			next.LastTransitionTime = c.LastTransitionTime
		}
		if c.Status == next.Status && c.Reason == next.Reason && c.Message == next.Message {
			next.LastHeartbeatTime = c.LastHeartbeatTime
		}
	}
	return next
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
