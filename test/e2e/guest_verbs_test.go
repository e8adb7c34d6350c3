//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// TestFreezeAndReset: a person, and a backup tool by the hooks on the launcher, freeze a guest and thaw it; a reset has it boot again in the same
// instance; its objects are in the graph.
func TestFreezeAndReset(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	text, err := os.ReadFile("../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	y.apply(strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.url, 1))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "guest agent on")

	y.subresource("virtualmachineinstances", "web", "freeze", map[string]string{"unfreezeTimeout": "1m"})
	y.guestSays(vm, "frozen")
	y.subresource("virtualmachineinstances", "web", "unfreeze", struct{}{})
	y.guestSays(vm, "thawed")

	launcher := strings.TrimSpace(y.kubectl("get", "pods", "-l", render.LabelDomain+"=web", "-o", "jsonpath={.items[0].metadata.name}"))
	for times, hook := range []string{"pre-backup", "post-backup"} {
		y.kubectl("exec", launcher, "-c", "compute", "--", "/usr/bin/launcher", hook)
		y.guestSaysAgain(vm, []string{"frozen", "thawed"}[times], 2)
	}
	graph := y.kubectl("get", "--raw", "/apis/subresources.kubevirt.io/v1/namespaces/"+y.Namespace+"/virtualmachines/web/objectgraph")
	for _, want := range []string{launcher, `"web-root"`, `"web-data"`} {
		if !strings.Contains(graph, want) {
			t.Errorf("%s is not in the graph %s", want, graph)
		}
	}
	before := instance(y).UID
	y.subresource("virtualmachineinstances", "web", "reset", struct{}{})
	y.guestSaysAgain(vm, "guest agent on", 2)
	if after := instance(y).UID; after != before {
		t.Errorf("a reset made instance %s of %s", after, before)
	}
}
