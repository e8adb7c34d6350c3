//go:build e2e

package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestNodeSaysWhatKVMDoes: a node with a KVM that runs no guest offers none of it, and an event of the node says why; one with KVM that works, or with
// none, has no such event. Which it is depends on the machine that the test runs on.
func TestNodeSaysWhatKVMDoes(t *testing.T) {
	t.Parallel()
	env := framework.New(t)
	for _, name := range env.ReadyNodes() {
		node, err := env.Client.CoreV1().Nodes().Get(env.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const kvm = corev1.ResourceName("devices.kubevirt.io/kvm")
		has, gives := node.Status.Capacity[kvm], node.Status.Allocatable[kvm]
		broken := !has.IsZero() && gives.IsZero()
		events, err := env.Client.CoreV1().Events(corev1.NamespaceDefault).List(env.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + name + ",reason=KVMDoesNotWork"})
		if err != nil {
			t.Fatal(err)
		}
		if said := len(events.Items) > 0; said != broken {
			t.Errorf("%s has %s of KVM, of which it gives %s, and says %v", name, &has, &gives, events.Items)
		}
		for _, e := range events.Items {
			if age := time.Since(e.LastTimestamp.Time); age > time.Hour || !strings.Contains(e.Message, "runs no guest: ") {
				t.Errorf("%s said %s ago: %s", name, age, e.Message)
			}
		}
	}
}
