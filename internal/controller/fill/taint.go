package fill

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// conditionTaint begins the taints with which Kubernetes says that a node is not well, or is being emptied.
const conditionTaint = "node.kubernetes.io/"

// tolerations let a worker follow its claim to the one node its volume is on, whatever that node repels: somebody who may
// run there had it bound there, and it is filled there or nowhere. They are none for a volume that several nodes can use.
func (e *Engine) tolerations(ctx context.Context, home *corev1.NodeSelector) ([]corev1.Toleration, error) {
	if home == nil {
		return nil, nil
	}
	nodes, err := e.nodesIn(ctx, home)
	if err != nil || len(nodes) != 1 {
		return nil, err
	}
	var out []corev1.Toleration
	for _, t := range nodes[0].Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, conditionTaint) {
			out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
		}
	}
	return out, nil
}

// follow has a worker's pod tolerate what its claim's node repels; home is where that claim's volume is.
func (e *Engine) follow(ctx context.Context, pod *corev1.Pod, home *corev1.NodeSelector) error {
	more, err := e.tolerations(ctx, home)
	if err != nil {
		return err
	}
	pod.Spec.Tolerations = slices.Concat(pod.Spec.Tolerations, more)
	return nil
}
