//go:build e2e

package machine

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestFreezeAndReset: a person, and a backup tool by the hooks on the launcher, freeze a guest and thaw it; a reset has it boot again in the same
// instance; its objects are in the graph.
func TestFreezeAndReset(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	text, err := os.ReadFile("../../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	y.Apply(strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.GuestURL, 1))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "guest agent on")

	y.Subresource("virtualmachineinstances", "web", "freeze", map[string]string{"unfreezeTimeout": "1m"})
	y.GuestSays(vm, "frozen")
	y.Subresource("virtualmachineinstances", "web", "unfreeze", struct{}{})
	y.GuestSays(vm, "thawed")

	launcher := strings.TrimSpace(y.Kubectl("get", "pods", "-l", render.LabelDomain+"=web", "-o", "jsonpath={.items[0].metadata.name}"))
	for times, hook := range []string{"pre-backup", "post-backup"} {
		y.Kubectl("exec", launcher, "-c", "compute", "--", "/usr/bin/launcher", hook)
		y.GuestSaysAgain(vm, []string{"frozen", "thawed"}[times], 2)
	}
	graph := y.Kubectl("get", "--raw", "/apis/subresources.kubevirt.io/v1/namespaces/"+y.Namespace+"/virtualmachines/web/objectgraph")
	for _, want := range []string{launcher, `"web-root"`, `"web-data"`} {
		if !strings.Contains(graph, want) {
			t.Errorf("%s is not in the graph %s", want, graph)
		}
	}
	before := fixture.OnlyInstance(y).UID
	y.Subresource("virtualmachineinstances", "web", "reset", struct{}{})
	y.GuestSaysAgain(vm, "guest agent on", 2)
	if after := fixture.OnlyInstance(y).UID; after != before {
		t.Errorf("a reset made instance %s of %s", after, before)
	}
}
