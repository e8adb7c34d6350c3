package observed

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pods"
)

// Situation returns the state of a pod of an instance.
func Situation(p *corev1.Pod) machine.Pod {
	switch {
	case p == nil:
		return machine.NoPod
	case p.DeletionTimestamp != nil:
		return machine.Going
	case launcherpod.Ended(p) == corev1.PodFailed || launcherpod.Ended(p) == corev1.PodSucceeded && launcherpod.LastWords(p).End == launcherapi.Stopped:
		return machine.Broken // a guest that was stopped although nobody deleted its pod: the kubelet gave it up
	case launcherpod.Ended(p) == corev1.PodSucceeded && launcherpod.LastWords(p).End == launcherapi.Moved:
		return machine.Broken // and the launcher that the guest went to is not there
	case launcherpod.Ended(p) == corev1.PodSucceeded:
		return machine.Done
	case p.Spec.NodeName == "" && Unschedulable(p) != "":
		return machine.Unplaceable
	case p.Spec.NodeName == "":
		return machine.Waiting
	case launcherpod.Up(p):
		return machine.Up
	}
	return machine.Placed
}

// ConsumerSituation returns the state of a consumer. While the scheduler binds the claims on the chosen node, the consumer's
// condition still says that it is unschedulable; the chosen node is in its status then (from Kubernetes 1.35 on).
func ConsumerSituation(p *corev1.Pod) machine.Pod {
	if at := Situation(p); at != machine.Unplaceable || p.Status.NominatedNodeName == "" {
		return at
	}
	return machine.Waiting
}

// Unschedulable is the scheduler's own sentence about a pod no node will have.
func Unschedulable(p *corev1.Pod) string {
	if no, why := pods.Unplaceable(p); no {
		return why
	}
	return ""
}
