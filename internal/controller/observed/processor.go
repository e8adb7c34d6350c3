package observed

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/state"
)

// Labels about the processors of nodes: upstream's, one for each model that a node's guests can have, and those of
// node-feature-discovery. Berth writes none of them. For a node without labels libvirt decides.
const (
	LabelModel  = "cpu-model.node.kubevirt.io/"
	LabelVendor = "feature.node.kubernetes.io/cpu-model.vendor_id"
	LabelFamily = "feature.node.kubernetes.io/cpu-model.family"
	LabelID     = "feature.node.kubernetes.io/cpu-model.id"
)

// observeProcessors finds out whether the guest's processor keeps it on its node.
func (r *Reader) observeProcessors(ctx context.Context, s *Instance) error {
	c := s.Object.Spec.Domain.CPU
	if s.Launcher == nil || c == nil || c.Model == "" || c.Model == "host-model" || r.Options.Emulate { // an emulated processor is the same everywhere
		return nil
	}
	var nodes corev1.NodeList
	if err := r.Cached.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.processor, s.processorText = Bound(c.Model, s.Launcher.Spec.NodeName, nodes.Items)
	return nil
}

// Bound returns why a guest with that CPU model cannot leave its node; empty if no reason is known.
func Bound(model, at string, nodes []corev1.Node) (cause state.FixedCause, detail string) {
	here := ""
	for i := range nodes {
		if nodes[i].Name == at {
			here = processorOf(&nodes[i])
		}
	}
	labelled := false
	for i := range nodes {
		n := &nodes[i]
		if n.Name == at {
			continue
		}
		if model == "host-passthrough" {
			if is := processorOf(n); here == "" || is == "" || is == here {
				return "", ""
			}
			labelled = true
			continue
		}
		if !saysModels(n) || n.Labels[LabelModel+model] == "true" {
			return "", ""
		}
		labelled = true
	}
	switch {
	case !labelled: // there is no other node, which the scheduler says better
		return "", ""
	case model == "host-passthrough":
		return state.CauseCPUHost, here
	}
	return state.CauseCPU, model
}

// processorOf returns the processor of a node; empty if its labels do not say.
func processorOf(n *corev1.Node) string {
	vendor, family, id := n.Labels[LabelVendor], n.Labels[LabelFamily], n.Labels[LabelID]
	if vendor == "" || family == "" || id == "" {
		return ""
	}
	return fmt.Sprintf("%s, family %s, model %s", vendor, family, id)
}

func saysModels(n *corev1.Node) bool {
	for key := range n.Labels {
		if strings.HasPrefix(key, LabelModel) {
			return true
		}
	}
	return false
}
