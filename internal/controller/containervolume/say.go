package containervolume

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	contract "github.com/berth-vm/berth/internal/containervolume"
	"github.com/berth-vm/berth/internal/decide/containervolume"
	"github.com/berth-vm/berth/internal/state"
)

// statement is a volume's state to report.
type statement struct {
	reason  state.MachineReason
	detail  string
	pending bool
	trouble bool
}

// with returns the statement for a failed action.
func (s statement) with(v *volume, trouble error) statement {
	switch {
	case pending(trouble):
		s.pending, s.detail = true, "it has been asked and is at it"
		return s
	case v.wish != containervolume.Wanted:
		s.reason = state.VolumeNotDeleted
	case errors.Is(trouble, contract.ErrRefused):
		s.reason = state.VolumeRefused
	}
	s.trouble, s.detail = true, trouble.Error()
	return s
}

// again returns when to check again if no event comes before.
func (s statement) again() time.Duration {
	switch {
	case s.pending, s.trouble && s.reason == state.VolumeMaking: // it may only not listen yet
		return soon
	case s.reason == state.VolumeMade || s.reason == state.VolumeInUse:
		return forKeys
	}
	return pause
}

// waits returns what is known about a pod that cannot be asked.
func (v *volume) waits() string {
	if v.record == nil {
		return ""
	}
	what := "pod " + v.record.Name
	switch situation(v.pod) {
	case containervolume.NoPod:
		return what + " is to be started"
	case containervolume.Starting:
		if why := trouble(v.pod); why != "" {
			return fmt.Sprintf("%s does not run: %s", what, why)
		}
		return what + " is not ready yet"
	case containervolume.Closing, containervolume.Ending:
		return what + " is being deleted"
	case containervolume.Ended:
		return fmt.Sprintf("%s has ended: %s %s", what, v.pod.Status.Reason, v.pod.Status.Message)
	case containervolume.Up:
	}
	return what + " runs"
}

// trouble returns why a pod does not start, in the words of the scheduler or the kubelet.
func trouble(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return fmt.Sprintf("%s %s", w.Reason, w.Message)
		}
	}
	return ""
}

// report writes the status of a volume into its record, and sends an event to the machine if there is a problem.
func (r *Reconciler) report(ctx context.Context, v *volume, s statement) error {
	if v.wish != containervolume.Wanted && s.reason == state.VolumeStarting {
		s.reason = state.VolumeDeleting
		if v.pod != nil && trouble(v.pod) != "" {
			s.reason = state.VolumeNotDeleted
		}
	}
	row := state.OfMachine(s.reason)
	next := accessv1.ContainerVolumeStatus{Reason: string(s.reason), Message: row.Text(v.record.Spec.Machine, fmt.Sprintf("volume %s: %s", v.name, s.detail))}
	old := v.record.Status
	if old.Reason == next.Reason && old.Message == next.Message {
		return nil
	}
	next.Since = old.Since
	if old.Reason != next.Reason || old.Since == nil {
		next.Since = new(metav1.NewTime(r.clock.Now()))
	}
	said := &accessv1.ContainerVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.record.Namespace, Name: v.record.Name, UID: v.record.UID}, Status: next}
	if err := r.cluster.ApplyStatus(ctx, said); err != nil {
		return gone(err)
	}
	if old.Reason != next.Reason && row.Warn {
		var about client.Object = v.record
		if v.vm != nil {
			about = v.vm
		}
		r.cluster.Event(about, corev1.EventTypeWarning, next.Reason, next.Message)
	}
	return nil
}
