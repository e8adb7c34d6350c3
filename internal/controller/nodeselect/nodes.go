// Package nodeselect is about where pods may run: which nodes a part of the cluster has, and how a pod is kept to that part. It only
// reads, and does not know what the pods are for.
package nodeselect

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// In returns the nodes of a part of the cluster.
func In(ctx context.Context, from client.Reader, part *corev1.NodeSelector) ([]corev1.Node, error) {
	var all corev1.NodeList
	if err := from.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	selector := nodeaffinity.NewLazyErrorNodeSelector(part)
	var in []corev1.Node
	for i := range all.Items {
		if ok, err := selector.Match(&all.Items[i]); ok && err == nil {
			in = append(in, all.Items[i])
		}
	}
	return in, nil
}

// Away reports whether a node does not answer, or is gone: the status of its pods is unreliable then.
func Away(node *corev1.Node) bool {
	if node == nil {
		return true
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return false
}

// conditionTaint begins the taints with which Kubernetes says that a node is not well, or is being emptied.
const conditionTaint = "node.kubernetes.io/"

// Tolerations let a worker follow its claim to the one node its volume is on, whatever taints that node has: a pod that may run
// there had the claim bound there, and it can be filled nowhere else. There are none for a volume that several nodes can use.
func Tolerations(ctx context.Context, from client.Reader, home *corev1.NodeSelector) ([]corev1.Toleration, error) {
	if home == nil {
		return nil, nil
	}
	in, err := In(ctx, from, home)
	if err != nil || len(in) != 1 {
		return nil, err
	}
	var out []corev1.Toleration
	for _, t := range in[0].Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, conditionTaint) {
			out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
		}
	}
	return out, nil
}

// Follow has a worker's pod tolerate what its claim's node repels; home is where that claim's volume is.
func Follow(ctx context.Context, from client.Reader, pod *corev1.Pod, home *corev1.NodeSelector) error {
	more, err := Tolerations(ctx, from, home)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, more...)
	return err
}

// FollowClaims has a worker's pod tolerate what the nodes repel that the volumes of its claims are on.
func FollowClaims(ctx context.Context, from client.Reader, pod *corev1.Pod, claims ...*corev1.PersistentVolumeClaim) error {
	for _, claim := range claims {
		pv, err := cluster.VolumeOf(ctx, from, claim)
		if err != nil {
			return err
		}
		if pv == nil || pv.Spec.NodeAffinity == nil {
			continue
		}
		if err := Follow(ctx, from, pod, pv.Spec.NodeAffinity.Required); err != nil {
			return err
		}
	}
	return nil
}

// Within narrows where a pod may run to a part of the cluster: each of the terms it had, and one of the part's.
func Within(a *corev1.Affinity, part *corev1.NodeSelector) *corev1.Affinity {
	if part == nil {
		return a
	}
	a = a.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	had := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if had == nil {
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = part
		return a
	}
	var both []corev1.NodeSelectorTerm
	for _, x := range had.NodeSelectorTerms {
		for _, y := range part.NodeSelectorTerms {
			term := x.DeepCopy()
			term.MatchExpressions = append(term.MatchExpressions, y.MatchExpressions...)
			term.MatchFields = append(term.MatchFields, y.MatchFields...)
			both = append(both, *term)
		}
	}
	a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: both}
	return a
}
