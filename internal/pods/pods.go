// Package pods answers the questions that are asked of pods again and again: whether one is ready, over, without a node, why it does
// not start, and when it ended. It is pure, and does not know what the pods are for.
package pods

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Ready reports whether the pod says so itself.
func Ready(p *corev1.Pod) bool {
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Over reports whether the pod has ended, well or not.
func Over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Unplaceable returns whether the scheduler finds no node for the pod, and why.
func Unplaceable(p *corev1.Pod) (bool, string) {
	c := condition(p, corev1.PodScheduled)
	if c == nil {
		return false, ""
	}
	return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable, c.Message
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// Waiting returns what the first container that waits waits for, in a word and in a sentence; empty: none waits.
func Waiting(p *corev1.Pod) (reason, sentence string) {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return w.Reason, strings.TrimSpace(w.Reason + " " + w.Message)
		}
	}
	return "", ""
}

// Unfetchable returns whether the node cannot fetch the pod's image, and why.
func Unfetchable(p *corev1.Pod) (bool, string) {
	switch reason, sentence := Waiting(p); reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return true, sentence
	}
	return false, ""
}

// Terminated returns how the pod's first container ended; nil: it has not, or there is no pod.
func Terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return nil
	}
	return p.Status.ContainerStatuses[0].State.Terminated
}

// Ended returns when a pod ended. One that was evicted or lost has no containers to say so; then its conditions do.
func Ended(p *corev1.Pod) time.Time {
	if t := Terminated(p); t != nil && !t.FinishedAt.IsZero() {
		return t.FinishedAt.Time
	}
	last := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	return last
}

// Has returns whether the claim is among the pod's volumes, and whether the pod may write to it.
func Has(p *corev1.Pod, claim string) (has, writes bool) {
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == claim {
			has, writes = true, writes || !c.ReadOnly
		}
	}
	return has, writes
}
