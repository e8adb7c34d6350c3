package imageupload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// heldError is the error for a volume that waits for its first consumer, which an upload is not.
type heldError struct {
	kind, state string // "DataVolume", "WaitForFirstConsumer"
	claim       string
	class       string
	nodes, vms  []string // some of those this cluster has
}

// Error returns the line clients know.
func (h *heldError) Error() string {
	return fmt.Sprintf("cannot upload to %s in state %s", h.kind, h.state)
}

// Advice returns what can be done about it in this cluster.
func (h *heldError) Advice() string {
	var b strings.Builder
	fmt.Fprintf(&b, "PVC %s is bound where the first pod that uses it runs", h.claim)
	if h.class != "" {
		fmt.Fprintf(&b, ": storage class %s waits for that", h.class)
	}
	b.WriteString(". Repeat the command with one of\n")
	b.WriteString("  --force-bind     to bind it on any node\n")
	b.WriteString("  --node NAME      to bind it on that node" + some(h.nodes) + "\n")
	b.WriteString("  --like-vm NAME   to bind it where that VM runs or can run" + some(h.vms) + "\n")
	fmt.Fprintf(&b, "or start a pod that uses the claim %s and repeat the command when it is bound.", h.claim)
	return b.String()
}

// enough names make a list that is still read.
const enough = 5

func some(names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	more := ""
	if len(names) > enough {
		names, more = names[:enough], ", ..."
	}
	return ": " + strings.Join(names, ", ") + more
}

// newHeld looks around for what the user can do. What may not be read is left out of the advice.
func newHeld(ctx context.Context, c *kube.Client, kind, state, claim string) *heldError {
	h := &heldError{kind: kind, state: state, claim: claim}
	if pvc, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, claim, metav1.GetOptions{}); err == nil &&
		pvc.Spec.StorageClassName != nil {
		h.class = *pvc.Spec.StorageClassName
	}
	if nodes, err := c.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, n := range nodes.Items {
			if takesPods(&n) {
				h.nodes = append(h.nodes, n.Name)
			}
		}
	}
	if vms, err := kube.Machines.List(ctx, c); err == nil {
		for _, vm := range vms {
			h.vms = append(h.vms, vm.Name)
		}
	}
	return h
}

func takesPods(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !n.Spec.Unschedulable
}
