package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func says(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: kind, Status: status, Reason: reason, Message: "why"}}}}
}

func waits(reason string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "more"}}}}}}
}

// TestQuestions: what a pod says of itself, and what it does not.
func TestQuestions(t *testing.T) {
	yes := func(b bool, _ string) bool { return b }
	for name, c := range map[string]struct{ got, want bool }{
		"ready":                       {Ready(says(corev1.PodReady, corev1.ConditionTrue, "")), true},
		"not ready":                   {Ready(says(corev1.PodReady, corev1.ConditionFalse, "")), false},
		"silent":                      {Ready(&corev1.Pod{}), false},
		"over":                        {Over(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}), true},
		"unknown":                     {Over(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodUnknown}}), false},
		"unplaceable":                 {yes(Unplaceable(says(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable))), true},
		"not placed for other reason": {yes(Unplaceable(says(corev1.PodScheduled, corev1.ConditionFalse, "SchedulingGated"))), false},
		"placed":                      {yes(Unplaceable(says(corev1.PodScheduled, corev1.ConditionTrue, ""))), false},
		"unfetchable":                 {yes(Unfetchable(waits("ImagePullBackOff"))), true},
		"starting":                    {yes(Unfetchable(waits("ContainerCreating"))), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: %t", name, c.got)
		}
	}
	if _, sentence := Waiting(waits("ImagePullBackOff")); sentence != "ImagePullBackOff more" {
		t.Errorf("it waits for %q", sentence)
	}
}

// TestEnded: a pod whose containers say nothing ended when something was last said of it.
func TestEnded(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC))
	evicted := says(corev1.PodReady, corev1.ConditionFalse, "")
	evicted.Status.Conditions[0].LastTransitionTime = at
	exited := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}}}}}
	for _, p := range []*corev1.Pod{evicted, exited, {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}}} {
		if !Ended(p).Equal(at.Time) {
			t.Errorf("%+v ended at %s", p.Status, Ended(p))
		}
	}
	if Terminated(nil) != nil {
		t.Error("no pod has ended")
	}
}

// TestHas: a claim that is mounted twice is written to if one of them is.
func TestHas(t *testing.T) {
	mount := func(claim string, readOnly bool) corev1.Volume {
		return corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{}, mount("a", true), mount("b", false), mount("b", true)}}}
	for claim, want := range map[string][2]bool{"a": {true, false}, "b": {true, true}, "c": {false, false}} {
		if has, writes := Has(p, claim); has != want[0] || writes != want[1] {
			t.Errorf("%s: has %t, writes %t", claim, has, writes)
		}
	}
}
