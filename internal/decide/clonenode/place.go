// Package clonenode decides on which node a clone is made whose source can be used on some nodes only: on a node of the source, or
// on none, and then why. It does a small part of the scheduler's work, because the scheduler does not know where the source of a
// claim is. By itself the scheduler would try other nodes, and perhaps the same wrong one for ever.
//
// Decide is a pure function of a few facts, and testdata/decisions.txt has a line for each situation. It uses Refuses, which
// checks one node for one pod. Neither reads a cluster.
package clonenode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	reach "k8s.io/component-helpers/storage/volume"
)

// Refusal is a reason why a pod cannot run on a node.
type Refusal int

// The refusals. Only what is cheap to see and common is looked at; what only the scheduler knows, for example how pods are
// spread, is left to it.
const (
	Fits          Refusal = iota
	Never                 // it may not run there, or the node repels it
	DiskElsewhere         // another of its disks cannot be used there
	NoRoom                // the node has too little left
)

func (r Refusal) String() string {
	return [...]string{"Fits", "Never", "DiskElsewhere", "NoRoom"}[r]
}

// words say it of a pod.
func (r Refusal) words() string {
	switch r {
	case DiskElsewhere:
		return "cannot run, for another of its disks is elsewhere"
	case NoRoom:
		return "finds no room"
	case Fits, Never:
	}
	return "cannot run"
}

// Pod is one that wants the claim and has no node yet.
type Pod struct {
	Name string
	// Home is the first of the source's nodes that would have it; empty: none would.
	Home string
	// Why the last of them refuses it, if all do.
	Why Refusal
}

// Facts is everything a decision depends on.
type Facts struct {
	// Bound: the source can be used on Homes only. Otherwise it can be used on every node, or that is unknown.
	Bound bool
	Homes []string
	// Chosen is the node that was chosen for the claim; empty: none was.
	Chosen string
	// Free: the node is ours to choose, because the claim is not made yet and its class binds without a consumer.
	Free bool
	Pods []Pod
}

// Place is the node on which a clone is made.
type Place struct {
	// Beside is the node to make it on; "" if none asked for it yet, or it may be made anywhere.
	Beside string
	// Why it must run where the source cannot be used; empty: it need not, or that is unknown so far.
	Why string
}

// Decide returns where the clone is made.
func Decide(f Facts) Place {
	if !f.Bound {
		return Place{}
	}
	there := "the source is on " + nodes(f.Homes)
	if f.Chosen != "" {
		if slices.Contains(f.Homes, f.Chosen) {
			return Place{}
		}
		return Place{Why: fmt.Sprintf("%s and the claim is wanted on %s", there, f.Chosen)}
	}
	p := Place{}
	if f.Free && len(f.Homes) == 1 {
		p.Beside = f.Homes[0]
	}
	for _, pod := range f.Pods {
		if pod.Home == "" {
			return Place{Why: fmt.Sprintf("%s, where pod %s %s", there, pod.Name, pod.Why.words())}
		}
		p.Beside = pod.Home
	}
	return p
}

func nodes(names []string) string {
	if len(names) == 0 {
		return "no node that exists"
	}
	return "node " + strings.Join(names, ", ")
}

// Refuses returns why a pod cannot run on a node that has other pods already. disks are the volumes of those of the pod's claims
// that are bound.
func Refuses(node *corev1.Node, others []corev1.Pod, pod *corev1.Pod, disks []corev1.PersistentVolume) Refusal {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return Never
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok || err != nil {
		return Never
	}
	_, tainted := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, false)
	if tainted {
		return Never
	}
	for i := range disks {
		if reach.CheckNodeAffinity(&disks[i], node.Labels) != nil {
			return DiskElsewhere
		}
	}
	free := left(node, others)
	for name, needed := range resources.PodRequests(pod, resources.PodResourcesOptions{}) {
		if left := free[name]; left.Cmp(needed) < 0 {
			return NoRoom
		}
	}
	return Fits
}

// left returns what a node has free beside the pods on it.
func left(node *corev1.Node, others []corev1.Pod) corev1.ResourceList {
	free := node.Status.Allocatable.DeepCopy()
	for i := range others {
		p := &others[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for name, used := range resources.PodRequests(p, resources.PodResourcesOptions{}) {
			rest := free[name]
			rest.Sub(used)
			free[name] = rest
		}
	}
	return free
}
