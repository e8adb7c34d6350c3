//go:build e2e

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// overhear listens to the guest until its launcher ends; the function says then whether it said so.
func overhear(y *fixture.Machines, vm *kubevirt.VirtualMachine, want string) func() bool {
	y.T.Helper()
	log, said := y.Console(y.Context(), vm), make(chan bool, 1)
	go func() {
		defer log.Close()
		found := false
		for lines := bufio.NewScanner(log); lines.Scan(); {
			found = found || strings.Contains(lines.Text(), want)
		}
		said <- found
	}()
	return func() bool { return <-said }
}

// TestMachineBootsFromItsDisks is the seed's use case: both disks on one node, and the guest sees them.
func TestMachineBootsFromItsDisks(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	vm := y.ExampleMachine("boots")
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	nodes := y.NodesOfClaims("boots-root", "boots-data")
	_, launchers := y.PodsOf(t.Context(), vm)
	if len(nodes) != 1 || !nodes[launchers[0].Spec.NodeName] {
		t.Errorf("the disks are on %v, the guest on %s", nodes, launchers[0].Spec.NodeName)
	}
	y.GuestSays(vm, "disk vdb bus=virtio serial=DATA size=1073741824")
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.Wait("nothing of the machine to be left", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var claims corev1.PersistentVolumeClaimList
		if err := y.Kube.List(ctx, &claims, client.InNamespace(y.Namespace)); err != nil {
			return false, err.Error()
		}
		consumers, launchers := y.PodsOf(ctx, vm)
		left := len(claims.Items) + len(consumers) + len(launchers)
		return left == 0, fmt.Sprintf("%d claims and pods", left)
	})
}

// TestMachineStepsInOrder watches the nine steps with the import held back, so that each can be seen.
func TestMachineStepsInOrder(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.ExampleMachine("steps")
	seen := record(y, vm)
	y.CreateMachine(vm)
	y.Wait("the import to have begun and the consumer to be gone", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		consumers, launchers := y.PodsOf(ctx, vm)
		var v cdiv1.DataVolume
		err := y.Kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "steps-root"}, &v)
		return err == nil && v.Status.Phase == cdiv1.ImportInProgress && len(consumers) == 0 && len(launchers) == 1,
			fmt.Sprintf("%s, %d consumers, %d launchers", v.Status.Phase, len(consumers), len(launchers))
	})
	close(y.Gate.Open)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	// The scheduler binds the claims before it binds the pod, so being placed has no place in this order.
	want := []string{"volume made", "held", "consumer made", "import scheduled", "consumer gone", "filled", "guest runs"}
	got := seen(want[len(want)-1])
	for _, extra := range extras {
		if slices.Contains(got, extra) {
			t.Errorf("there was %s; in order: %s", extra, strings.Join(got, ", "))
		}
	}
	i := 0
	for _, line := range got {
		if i < len(want) && line == want[i] {
			i++
		}
	}
	if i != len(want) {
		t.Errorf("step %q did not come in its place; in order: %s", want[i], strings.Join(got, ", "))
	}
}

// TestMachineNoNodeCanRun: nothing is bound and nothing starts until a node can run the machine; then it continues.
func TestMachineNoNodeCanRun(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	vm := y.ExampleMachine("picky")
	key := "e2e.berth.dev/" + y.Namespace
	vm.Spec.Template.Spec.NodeSelector = map[string]string{key: "yes"}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusUnschedulable, fixture.Patience)
	if !strings.Contains(fixture.ReadyMessage(vm), "node(s) didn't match Pod's node affinity/selector") {
		t.Errorf("the scheduler's own words are missing: %s", fixture.ReadyMessage(vm))
	}
	y.StaysPending("picky-root", 3*time.Second)
	node := y.ReadyNodes()[0]
	label := func(value *string) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, jsonOf(value))
		_, err := y.Client.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), node, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Errorf("label %s: %v", node, err)
		}
	}
	t.Cleanup(func() { label(nil) })
	label(new("yes"))
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if nodes := y.NodesOfClaims("picky-root", "picky-data"); len(nodes) != 1 || !nodes[node] {
		t.Errorf("the disks are on %v, the only node that may run the machine is %s", nodes, node)
	}
}

func jsonOf(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

// TestMachineKeepsItsRoom floods the machine's node with pods of the same priority while its disk is imported: the room
// the consumer was placed with must still be the launcher's.
func TestMachineKeepsItsRoom(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.ExampleMachine("roomy")
	node := y.ReadyNodes()[1]
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")}
	fill(y, node, resource.MustParse("900m")) // one of the machine's two pods has room, not both
	y.CreateMachine(vm)
	y.Wait("the consumer to be placed", fixture.Patience, func(ctx context.Context) (bool, string) {
		consumers, launchers := y.PodsOf(ctx, vm)
		placed := len(launchers) > 0 || len(consumers) > 0 && consumers[0].Spec.NodeName != ""
		return placed, fmt.Sprintf("%d consumers, %d launchers", len(consumers), len(launchers))
	})
	y.FillNodeWithPods(node) // from now on the room is the machine's
	close(y.Gate.Open)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
}

// fill leaves no more CPU on the node than it is told.
func fill(y *fixture.Machines, node string, leave resource.Quantity) {
	y.T.Helper()
	var on corev1.Node
	var all corev1.PodList
	if err := errors.Join(y.Kube.Get(y.T.Context(), client.ObjectKey{Name: node}, &on), y.Kube.List(y.T.Context(), &all)); err != nil {
		y.T.Fatal(err)
	}
	free := on.Status.Allocatable.Cpu().DeepCopy()
	free.Sub(leave)
	for _, p := range all.Items {
		if p.Spec.NodeName != node || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range p.Spec.Containers {
			free.Sub(*c.Resources.Requests.Cpu())
		}
	}
	if free.Sign() <= 0 {
		return // others did
	}
	y.Start(framework.Pod{Name: "filler", Script: "sleep 1000", Node: node, Change: func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: free}
	}})
}
