package report

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// Say writes a status if it changed, and an event if the reason changed and no other event tells it.
func (r *Reporter) Say(ctx context.Context, about, said client.Object, unchanged bool, row state.MachineRow, fresh bool) error {
	if unchanged {
		return nil
	}
	if err := r.Cluster.ApplyStatus(ctx, said); err != nil {
		return err
	}
	if fresh && row.Message != "" && !row.Quiet {
		kind := corev1.EventTypeNormal
		if row.Warn {
			kind = corev1.EventTypeWarning
		}
		r.Cluster.Turn(about, kind, string(row.Reason), row.Message)
	}
	return nil
}

// Conditions keeps the times of unchanged conditions: lastTransitionTime is the change of the status, lastProbeTime the first
// observation of the present reason, which tells people how long they have waited.
func (r *Reporter) Conditions(old []kubevirt.Condition, next ...kubevirt.Condition) []kubevirt.Condition {
	now := metav1.NewTime(r.Clock.Now())
	for n := range next {
		c := &next[n]
		c.LastTransitionTime, c.LastProbeTime = now, &now
		i := slices.IndexFunc(old, func(o kubevirt.Condition) bool { return o.Type == c.Type && o.Status == c.Status })
		if i < 0 {
			continue
		}
		c.LastTransitionTime = old[i].LastTransitionTime
		if old[i].Reason == c.Reason && old[i].LastProbeTime != nil {
			c.LastProbeTime = old[i].LastProbeTime
		}
	}
	return next
}

// Named returns the metadata that a status is applied with.
func Named(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// Truth returns the status of a condition.
func Truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// ReasonOf returns the reason of the Ready condition.
func ReasonOf(conditions []kubevirt.Condition) string {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c.Reason
		}
	}
	return ""
}

// QOS returns the class of a pod; nil if it has none yet.
func QOS(p *corev1.Pod) *corev1.PodQOSClass {
	if p.Status.QOSClass == "" {
		return nil
	}
	return ptr.To(p.Status.QOSClass)
}
