package machine

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/pods"
)

// situation is how far a pod of an instance is.
func situation(p *corev1.Pod) machine.Pod {
	switch {
	case p == nil:
		return machine.NoPod
	case p.DeletionTimestamp != nil:
		return machine.Going
	case ended(p) == corev1.PodFailed || ended(p) == corev1.PodSucceeded && lastWords(p).End == launch.Stopped:
		return machine.Broken // a guest that was stopped although nobody deleted its pod: the kubelet gave it up
	case ended(p) == corev1.PodSucceeded && lastWords(p).End == launch.Moved:
		return machine.Broken // and the launcher that the guest went to is not there
	case ended(p) == corev1.PodSucceeded:
		return machine.Done
	case p.Spec.NodeName == "" && unschedulable(p) != "":
		return machine.Unplaceable
	case p.Spec.NodeName == "":
		return machine.Waiting
	case up(p):
		return machine.Up
	}
	return machine.Placed
}

// consumerSituation is how far a consumer is. One that the scheduler has chosen a node for, and whose claims it binds, still says what it
// said before, that no node will have it; the node is in its status then (from Kubernetes 1.35 on).
func consumerSituation(p *corev1.Pod) machine.Pod {
	if at := situation(p); at != machine.Unplaceable || p.Status.NominatedNodeName == "" {
		return at
	}
	return machine.Waiting
}

// up: the launcher's guest runs.
func up(p *corev1.Pod) bool { return pods.Ready(p) || started(p) }

// ended is how a pod ended; empty if it has not. The kubelet says first that the container has, and of the pod seconds later.
func ended(p *corev1.Pod) corev1.PodPhase {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return p.Status.Phase
	}
	if p.Spec.RestartPolicy != corev1.RestartPolicyNever || len(p.Status.ContainerStatuses) != 1 {
		return ""
	}
	switch t := p.Status.ContainerStatuses[0].State.Terminated; {
	case t == nil:
		return ""
	case t.ExitCode == 0:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// started: the guest runs, whatever a probe says that asks later: a probe of the machine's own asks something else, and one of ours may
// come back too late from a node that has much to do. The kubelet takes it back when the container has ended, and not before.
func started(p *corev1.Pod) bool {
	probed := slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.StartupProbe != nil })
	return probed && slices.ContainsFunc(p.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.Started != nil && *c.Started })
}

// unschedulable is the scheduler's own sentence about a pod no node will have.
func unschedulable(p *corev1.Pod) string {
	if no, why := pods.Unplaceable(p); no {
		return why
	}
	return ""
}

// lastWords is what a launcher left, or what the kubelet says of it.
func lastWords(p *corev1.Pod) launch.Report {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated == nil {
			continue
		}
		var r launch.Report
		if json.Unmarshal([]byte(c.State.Terminated.Message), &r) == nil && r.End != "" {
			if p.DeletionTimestamp == nil && (r.End == launch.Stopped || r.End == launch.Killed) {
				r.Detail = "the kubelet ended it, for a liveness probe that failed or because the node had to: " + r.Detail
			}
			return r
		}
		return launch.Report{End: launch.Crashed, Detail: fmt.Sprintf("the launcher ended with code %d (%s) and no report",
			c.State.Terminated.ExitCode, c.State.Terminated.Reason)}
	}
	return launch.Report{End: launch.Crashed, Detail: fmt.Sprintf("pod %s: %s %s", p.Name, p.Status.Reason, p.Status.Message)}
}
