//go:build e2e

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// outOfService says of a node that it is switched off, as an administrator does, and gives back how to take it back.
func outOfService(y *fixture.Machines, node string) (undo func()) {
	y.T.Helper()
	set := func(ctx context.Context, out bool) error {
		n, err := y.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if out {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		}
		_, err = y.Client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		return err
	}
	try := func(ctx context.Context, out bool) {
		y.T.Helper()
		var err error
		for range 5 { // others write to nodes all the time
			if err = set(ctx, out); err == nil {
				return
			}
		}
		y.T.Errorf("taint node %s: %v", node, err)
	}
	try(y.Context(), true)
	y.T.Cleanup(func() { try(context.Background(), false) })
	return func() { try(y.Context(), false) }
}

// forcedOutage: a machine on a node that does not answer is stopped with force, its launcher is deleted with force, and both are
// kept all the same, because its guest may still write. It says what it waits for. When the node is out of service they are
// deleted.
func forcedOutage(y *fixture.Machines, node string) outage {
	vm := y.TinyMachine("forced", "local")
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return outage{
		before: func(t *testing.T) {
			y := inSubtest(y, t)
			y.CreateMachine(vm)
			y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		},
		away: func(t *testing.T) {
			y := inSubtest(y, t)
			y.WaitStatus(vm, kubevirt.StatusUnknown, fixture.BootPatience)
			v := fixture.NewVirtctl(t, y.Env)
			v.Must("stop", vm.Name, "--force", "--grace-period=0")
			y.WaitStatus(vm, kubevirt.StatusStopping, fixture.BootPatience)
			_, launchers := y.PodsOf(y.Context(), vm)
			if len(launchers) != 1 {
				t.Fatalf("the machine has %d launchers", len(launchers))
			}
			y.Kubectl("delete", "pod", launchers[0].Name, "--force", "--grace-period=0", "--wait=false")
			y.Stays("the launcher and its instance to be kept", 15*time.Second, func(ctx context.Context) (bool, string) {
				_, now := y.PodsOf(ctx, vm)
				i := y.InstanceOf(ctx, vm)
				return len(now) == 1 && now[0].UID == launchers[0].UID && i != nil, fmt.Sprintf("%d launchers, instance %v", len(now), i != nil)
			})
			tree := v.Must("vm", "status", vm.Name)
			for _, want := range []string{"node does not answer", "node.kubernetes.io/out-of-service", node} {
				if !strings.Contains(tree, want) || !strings.Contains(fixture.ReadyMessage(vm)+tree, want) {
					t.Errorf("vm status does not say %q:\n%s", want, tree)
				}
			}
		},
		out: func(t *testing.T) {
			y := inSubtest(y, t)
			y.WaitStatus(vm, kubevirt.StatusStopped, 3*fixture.BootPatience)
			if i := y.InstanceOf(y.Context(), vm); i != nil {
				t.Errorf("its instance is left: %s", i.Status.Reason)
			}
		},
		back: func(t *testing.T) {
			y := inSubtest(y, t)
			v := fixture.NewVirtctl(t, y.Env)
			v.Must("start", vm.Name)
			y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		},
	}
}

// elsewhereOutage: a machine with nothing on the node goes on elsewhere when the node is out of service, and not before.
func elsewhereOutage(y *fixture.Machines, node string) outage {
	vm := y.TinyMachine("elsewhere")
	vm.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}
	at := func(ctx context.Context, y *fixture.Machines) string {
		var i kubevirt.VirtualMachineInstance
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), &i); err != nil {
			return err.Error()
		}
		return i.Status.NodeName
	}
	return outage{
		before: func(t *testing.T) {
			y := inSubtest(y, t)
			y.CreateMachine(vm)
			y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
			if on := at(y.Context(), y); on != node {
				t.Fatalf("it runs on %s", on)
			}
		},
		away: func(t *testing.T) {
			y := inSubtest(y, t)
			y.WaitStatus(vm, kubevirt.StatusUnknown, fixture.BootPatience)
			_, launchers := y.PodsOf(y.Context(), vm)
			if len(launchers) != 1 || launchers[0].Spec.NodeName != node {
				t.Errorf("launchers of a machine whose node does not answer: %d", len(launchers))
			}
		},
		out: func(t *testing.T) {
			y := inSubtest(y, t)
			y.Wait("the machine to run elsewhere", 3*fixture.BootPatience, func(ctx context.Context) (bool, string) {
				if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
					return false, err.Error()
				}
				on := at(ctx, y)
				return vm.Status.PrintableStatus == kubevirt.StatusRunning && on != node, on + ": " + fixture.ReadyMessage(vm)
			})
		},
	}
}
