//go:build e2e

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachinePlacement: whatever decides where a machine may run decides where its disks are, all of them.
func TestMachinePlacement(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	nodes := y.ReadyNodes()
	if len(nodes) < 3 {
		t.Fatalf("%d nodes are ready, 3 are needed", len(nodes))
	}
	reserved := nodes[2]
	taint := y.TaintNode(reserved)
	y.Start(framework.Pod{Name: "neighbour", Script: "sleep 1000", Node: nodes[0], Labels: map[string]string{"side": "left"}})

	five := y.TinyMachine("five", "local", "localdisk", "local", "localdisk", "local")
	chosen := y.TinyMachine("chosen", "local", "localdisk")
	chosen.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodes[1]}
	apart := y.TinyMachine("apart", "local", "localdisk")
	apart.Spec.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: fixture.AffinityToNodes(nodes[0], nodes[1]),
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"side": "left"}}}}},
	}
	repelled := y.TinyMachine("repelled", "local")
	repelled.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: fixture.AffinityToNodes(nodes[1], reserved)}
	tolerant := y.TinyMachine("tolerant", "local", "localdisk") // "local" needs a worker, which has to follow it there
	tolerant.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: reserved}
	tolerant.Spec.Template.Spec.Tolerations = []corev1.Toleration{taint}
	// A claim that is bound already leaves one node for the other disks.
	y.Create(framework.Claim{Name: "bound", Class: "localdisk", Size: "64Mi", Block: true})
	y.Run(framework.Pod{Name: "first", Script: "true", Node: nodes[0], Claims: []string{"bound"}})
	follows := y.TinyMachine("follows", "local")
	follows.Spec.Template.Spec.Volumes = append(follows.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: "bound",
		VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "bound"}}})
	huge := y.TinyMachine("huge", "local", "localdisk")
	huge.Spec.Template.Spec.Domain.Memory.Guest = new(resource.MustParse("2000Gi"))

	for _, vm := range []*kubevirt.VirtualMachine{five, chosen, apart, repelled, tolerant, follows, huge} {
		y.CreateMachine(vm)
	}
	runsWithItsDisks(y, five, "")
	runsWithItsDisks(y, chosen, nodes[1])
	runsWithItsDisks(y, apart, nodes[1])
	runsWithItsDisks(y, repelled, nodes[1])
	runsWithItsDisks(y, tolerant, reserved)
	runsWithItsDisks(y, follows, nodes[0])

	y.WaitStatus(huge, kubevirt.StatusUnschedulable, fixture.Patience)
	if !strings.Contains(fixture.ReadyMessage(huge), "Insufficient memory") {
		t.Errorf("the scheduler's own words are missing: %s", fixture.ReadyMessage(huge))
	}
	for i := range 2 {
		claim, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(t.Context(), fmt.Sprintf("huge-%d", i), metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimPending {
			t.Errorf("claim of a machine no node can run: %v, %v", claim.Status.Phase, err)
		}
	}
}

// runsWithItsDisks waits until the machine runs and looks where its disks are: on its node, which is the wanted one.
func runsWithItsDisks(y *fixture.Machines, vm *kubevirt.VirtualMachine, node string) {
	y.T.Helper()
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	_, launchers := y.PodsOf(y.Context(), vm)
	on := launchers[0].Spec.NodeName
	if node != "" && on != node {
		y.T.Errorf("machine %s runs on %s, not on %s", vm.Name, on, node)
	}
	for _, t := range vm.Spec.DataVolumeTemplates {
		if at := framework.VolumeNode(y.WaitBound(t.ObjectMeta.Name)); at != on {
			y.T.Errorf("machine %s runs on %s and its disk %s is on %s", vm.Name, on, t.ObjectMeta.Name, at)
		}
	}
}

// TestMachineBatch: ten machines made at once all run, and deleted at once leave nothing.
func TestMachineBatch(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	var all []*kubevirt.VirtualMachine
	for i := range 10 {
		vm := y.TinyMachine(fmt.Sprintf("one-of-ten-%d", i), "local")
		all = append(all, vm)
		y.CreateMachine(vm)
	}
	for _, vm := range all {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	}
	for _, vm := range all {
		if err := y.Kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.WaitNothingLeft()
}

// TestMachineDeletedAtEveryStep: nothing is left of a machine, however far it had come.
func TestMachineDeletedAtEveryStep(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	importing := func(name string) *kubevirt.VirtualMachine {
		vm := y.TinyMachine(name, "local", "local")
		vm.Spec.DataVolumeTemplates[0].Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.GuestURL}}
		vm.Spec.DataVolumeTemplates[0].Spec.Storage.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("300Mi")
		return vm
	}
	nowhere := importing("nowhere")
	nowhere.Spec.Template.Spec.NodeSelector = map[string]string{"e2e.berth.dev/no": "such-node"}
	steps := []struct {
		vm   *kubevirt.VirtualMachine
		when func(context.Context, *kubevirt.VirtualMachine) bool
	}{
		{importing("made"), func(context.Context, *kubevirt.VirtualMachine) bool { return true }},
		{nowhere, func(_ context.Context, vm *kubevirt.VirtualMachine) bool {
			return vm.Status.PrintableStatus == kubevirt.StatusUnschedulable
		}},
		{importing("consumed"), func(ctx context.Context, vm *kubevirt.VirtualMachine) bool {
			consumers, launchers := y.PodsOf(ctx, vm)
			return len(consumers)+len(launchers) > 0
		}},
		{importing("importing"), func(ctx context.Context, _ *kubevirt.VirtualMachine) bool {
			var v cdiv1.DataVolume
			err := y.Kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "importing-0"}, &v)
			return err == nil && v.Status.Phase == cdiv1.ImportInProgress
		}},
		{y.TinyMachine("running", "local"), func(_ context.Context, vm *kubevirt.VirtualMachine) bool {
			return vm.Status.PrintableStatus == kubevirt.StatusRunning
		}},
	}
	for _, s := range steps {
		y.CreateMachine(s.vm)
	}
	for _, s := range steps {
		y.Wait(s.vm.Name+" to have come that far", fixture.BootPatience, func(ctx context.Context) (bool, string) {
			err := y.Kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: s.vm.Name}, s.vm)
			return err == nil && s.when(ctx, s.vm), fmt.Sprintf("%s: %s", s.vm.Status.PrintableStatus, fixture.ReadyMessage(s.vm))
		})
		if err := y.Kube.Delete(t.Context(), s.vm); err != nil {
			t.Fatal(err)
		}
	}
	y.WaitNothingLeft()
}
