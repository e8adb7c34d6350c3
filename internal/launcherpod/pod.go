package launcherpod

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
)

// Machine returns what a launcher was made with.
func Machine(p *corev1.Pod) launcherapi.Machine {
	m, _ := ReadMachine(p)
	return m
}

// ReadMachine returns what a launcher was made with, if it can be told.
func ReadMachine(p *corev1.Pod) (m launcherapi.Machine, ok bool) {
	return m, p != nil && json.Unmarshal([]byte(p.Annotations[render.AnnMachine]), &m) == nil
}

// Incoming returns the migration that brings a guest to a launcher; empty: it starts its guest itself.
func Incoming(p *corev1.Pod) types.UID {
	var m struct {
		Incoming types.UID `json:"incoming"`
	}
	if p == nil || json.Unmarshal([]byte(p.Annotations[render.AnnMachine]), &m) != nil {
		return ""
	}
	return m.Incoming
}

// Orders returns what a launcher was told about moves.
func Orders(p *corev1.Pod) launcherapi.Move {
	var m launcherapi.Move
	if p != nil {
		_ = json.Unmarshal([]byte(p.Annotations[render.AnnMove]), &m) // what cannot be read is told again
	}
	return m
}

// Up reports whether the launcher's guest runs.
func Up(p *corev1.Pod) bool { return pods.Ready(p) || started(p) }

// started reports whether the guest runs, by the startup probe and not the readiness probe: the machine's own readiness probe
// checks something else, and ours may time out on a busy node. The kubelet resets it only when the container has ended.
func started(p *corev1.Pod) bool {
	probed := slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.StartupProbe != nil })
	return probed && slices.ContainsFunc(p.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.Started != nil && *c.Started })
}

// Ended returns how a pod ended; empty if it has not. The kubelet says first that the container has, and of the pod seconds
// later.
func Ended(p *corev1.Pod) corev1.PodPhase {
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

// LastWords returns what a launcher left, or what the kubelet says of it.
func LastWords(p *corev1.Pod) launcherapi.Report {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated == nil {
			continue
		}
		var r launcherapi.Report
		if json.Unmarshal([]byte(c.State.Terminated.Message), &r) == nil && r.End != "" {
			if p.DeletionTimestamp == nil && (r.End == launcherapi.Stopped || r.End == launcherapi.Killed) {
				r.Detail = "the kubelet ended it, for a liveness probe that failed or because the node had to: " + r.Detail
			}
			return r
		}
		return launcherapi.Report{End: launcherapi.Crashed, Detail: fmt.Sprintf("the launcher ended with code %d (%s) and no report",
			c.State.Terminated.ExitCode, c.State.Terminated.Reason)}
	}
	return launcherapi.Report{End: launcherapi.Crashed, Detail: fmt.Sprintf("pod %s: %s %s", p.Name, p.Status.Reason, p.Status.Message)}
}
