//go:build e2e

package e2e

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
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachinePlacement: whatever decides where a machine may run decides where its disks are, all of them.
func TestMachinePlacement(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	nodes := y.ReadyNodes()
	if len(nodes) < 3 {
		t.Fatalf("%d nodes are ready, 3 are needed", len(nodes))
	}
	reserved := nodes[2]
	taint := y.taint(reserved)
	y.Start(framework.Pod{Name: "neighbour", Script: "sleep 1000", Node: nodes[0], Labels: map[string]string{"side": "left"}})

	five := y.tiny("five", "local", "localdisk", "local", "localdisk", "local")
	chosen := y.tiny("chosen", "local", "localdisk")
	chosen.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodes[1]}
	apart := y.tiny("apart", "local", "localdisk")
	apart.Spec.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: oneOf(nodes[0], nodes[1]),
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"side": "left"}}}}},
	}
	repelled := y.tiny("repelled", "local")
	repelled.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: oneOf(nodes[1], reserved)}
	tolerant := y.tiny("tolerant", "local", "localdisk") // "local" needs a worker, which has to follow it there
	tolerant.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: reserved}
	tolerant.Spec.Template.Spec.Tolerations = []corev1.Toleration{taint}
	// A claim that is bound already leaves one node for the other disks.
	y.Create(framework.Claim{Name: "bound", Class: "localdisk", Size: "64Mi", Block: true})
	y.Run(framework.Pod{Name: "first", Script: "true", Node: nodes[0], Claims: []string{"bound"}})
	follows := y.tiny("follows", "local")
	follows.Spec.Template.Spec.Volumes = append(follows.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: "bound",
		VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "bound"}}})
	huge := y.tiny("huge", "local", "localdisk")
	huge.Spec.Template.Spec.Domain.Memory.Guest = new(resource.MustParse("2000Gi"))

	for _, vm := range []*kubevirt.VirtualMachine{five, chosen, apart, repelled, tolerant, follows, huge} {
		y.create(vm)
	}
	y.runsWithItsDisks(five, "")
	y.runsWithItsDisks(chosen, nodes[1])
	y.runsWithItsDisks(apart, nodes[1])
	y.runsWithItsDisks(repelled, nodes[1])
	y.runsWithItsDisks(tolerant, reserved)
	y.runsWithItsDisks(follows, nodes[0])

	y.status(huge, kubevirt.StatusUnschedulable, patience)
	if !strings.Contains(why(huge), "Insufficient memory") {
		t.Errorf("the scheduler's own words are missing: %s", why(huge))
	}
	for i := range 2 {
		claim, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(t.Context(), fmt.Sprintf("huge-%d", i), metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimPending {
			t.Errorf("claim of a machine no node can run: %v, %v", claim.Status.Phase, err)
		}
	}
}

// taint keeps pods off a node until the test ends, and returns what tolerates it.
func (y *yard) taint(node string) corev1.Toleration {
	y.T.Helper()
	key := "e2e.berth.dev/" + y.Namespace
	set := func(keep bool) {
		ctx := context.WithoutCancel(y.Context())
		n, err := y.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			y.T.Fatal(err)
		}
		taints := []corev1.Taint{}
		for _, t := range n.Spec.Taints {
			if t.Key != key {
				taints = append(taints, t)
			}
		}
		if keep {
			taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		body := jsonText(y.T, map[string]any{"spec": map[string]any{"taints": taints}})
		if _, err := y.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			y.T.Fatalf("taint %s: %v", node, err)
		}
	}
	y.T.Cleanup(func() { set(false) })
	set(true)
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
}

func oneOf(nodes ...string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes}}}}}}
}

// runsWithItsDisks waits until the machine runs and looks where its disks are: on its node, which is the wanted one.
func (y *yard) runsWithItsDisks(vm *kubevirt.VirtualMachine, node string) {
	y.T.Helper()
	y.status(vm, kubevirt.StatusRunning, boot)
	_, launchers := y.pods(y.Context(), vm)
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
	y := newYard(t)
	var all []*kubevirt.VirtualMachine
	for i := range 10 {
		vm := y.tiny(fmt.Sprintf("one-of-ten-%d", i), "local")
		all = append(all, vm)
		y.create(vm)
	}
	for _, vm := range all {
		y.status(vm, kubevirt.StatusRunning, boot)
	}
	for _, vm := range all {
		if err := y.kube.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	y.nothingLeft()
}

// TestMachineDeletedAtEveryStep: nothing is left of a machine, however far it had come.
func TestMachineDeletedAtEveryStep(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	importing := func(name string) *kubevirt.VirtualMachine {
		vm := y.tiny(name, "local", "local")
		vm.Spec.DataVolumeTemplates[0].Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: y.url}}
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
			consumers, launchers := y.pods(ctx, vm)
			return len(consumers)+len(launchers) > 0
		}},
		{importing("importing"), func(ctx context.Context, _ *kubevirt.VirtualMachine) bool {
			var v cdiv1.DataVolume
			err := y.kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: "importing-0"}, &v)
			return err == nil && v.Status.Phase == cdiv1.ImportInProgress
		}},
		{y.tiny("running", "local"), func(_ context.Context, vm *kubevirt.VirtualMachine) bool {
			return vm.Status.PrintableStatus == kubevirt.StatusRunning
		}},
	}
	for _, s := range steps {
		y.create(s.vm)
	}
	for _, s := range steps {
		y.Wait(s.vm.Name+" to have come that far", boot, func(ctx context.Context) (bool, string) {
			err := y.kube.Get(ctx, types.NamespacedName{Namespace: y.Namespace, Name: s.vm.Name}, s.vm)
			return err == nil && s.when(ctx, s.vm), fmt.Sprintf("%s: %s", s.vm.Status.PrintableStatus, why(s.vm))
		})
		if err := y.kube.Delete(t.Context(), s.vm); err != nil {
			t.Fatal(err)
		}
	}
	y.nothingLeft()
}
