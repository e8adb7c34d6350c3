//go:build e2e

package move

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// draining is how long the small guests of one node may take to others, two at a time.
const draining = 2 * fixture.MovePatience

// preferring is a machine that likes a node and can run on any. Its pods and its instance have the test's label.
func preferring(y *fixture.Machines, name, node string, strategy kubevirt.EvictionStrategy) *kubevirt.VirtualMachine {
	vm := y.TinyMachine(name)
	t := vm.Spec.Template
	t.ObjectMeta.Labels = map[string]string{"e2e.berth.dev/group": y.Namespace}
	t.Spec.EvictionStrategy = &strategy
	t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100, Preference: fixture.AffinityToNodes(node).RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]}}}}
	return vm
}

// kubectlDrain empties a node of the test's pods as an administrator does, and undoes at once that the node takes no other pods: the
// other tests need it.
func kubectlDrain(y *fixture.Machines, node string) string {
	y.T.Helper()
	ctx, cancel := context.WithTimeout(y.Context(), draining)
	defer cancel()
	drain := exec.CommandContext(ctx, "../../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(y.T), "drain", node, "--ignore-daemonsets",
		"--delete-emptydir-data", "--pod-selector=e2e.berth.dev/group="+y.Namespace, "--timeout="+draining.String())
	var said strings.Builder
	drain.Stdout, drain.Stderr = &said, &said
	if err := drain.Start(); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("the drain to begin", fixture.Patience, func(ctx context.Context) (bool, string) {
		n, err := y.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil && n.Spec.Unschedulable, fmt.Sprint(err)
	})
	uncordon(y, node)
	if err := drain.Wait(); err != nil {
		y.T.Fatalf("kubectl drain %s: %v\n%s", node, err, said.String())
	}
	return said.String()
}

func uncordon(y *fixture.Machines, node string) {
	y.T.Helper()
	patch := []byte(`{"spec":{"unschedulable":false}}`)
	if _, err := y.Client.CoreV1().Nodes().Patch(context.WithoutCancel(y.Context()), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		y.T.Fatal(err)
	}
}

// TestDrain: five machines that are to move, one of them with a local disk of a claim template, leave a node that is emptied, by virtctl vm evacuate
// and by kubectl drain, and none of them is started again; one that would be shut down stays with virtctl.
func TestDrain(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	node := y.ReadyNodes()[0]
	var movers []*kubevirt.VirtualMachine
	for n := range 5 {
		movers = append(movers, preferring(y, fmt.Sprintf("mover-%d", n), node, kubevirt.EvictLiveMigrate))
		if n == 0 {
			fixture.FromClaimTemplate(movers[n], "own", "localdisk")
		}
		y.CreateMachine(movers[n])
	}
	stays := preferring(y, "stays", node, kubevirt.EvictNone)
	y.CreateMachine(stays)
	runs := map[string]types.UID{}
	for _, vm := range append(movers, stays) {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		i := y.InstanceOf(y.Context(), vm)
		runs[vm.Name] = i.UID
		if i.Status.NodeName != node {
			t.Fatalf("%s is on %s although it prefers %s", vm.Name, i.Status.NodeName, node)
		}
	}

	said := v.Run("vm", "evacuate", node, "--cordon=false", "--selector=e2e.berth.dev/group="+y.Namespace, "--timeout="+draining.String())
	t.Logf("virtctl vm evacuate: code %d\n%s%s", said.Code, said.Out, said.Err)
	if said.Code != 1 || !strings.Contains(said.Err, "machines stay on node "+node+": "+y.Namespace+"/stays") {
		t.Errorf("it does not say that a machine stays")
	}
	elsewhere(y, node, movers, runs)
	twoAtOnce(y, node, len(movers))
	if i := y.InstanceOf(y.Context(), stays); i.UID != runs["stays"] || i.Status.NodeName != node {
		t.Errorf("a machine that was to stay is %s on %s", i.UID, i.Status.NodeName)
	}

	from := y.InstanceOf(y.Context(), movers[0]).Status.NodeName
	evict(y, movers[0], "Eviction triggered evacuation of VMI", metav1.DryRunAll)
	out := kubectlDrain(y, from)
	t.Logf("kubectl drain:\n%s", out)
	fixture.HasTexts(t, out, "Eviction triggered evacuation of VMI", "drained")
	elsewhere(y, from, movers[:1], runs)
	for _, vm := range movers {
		if i := y.InstanceOf(y.Context(), vm); i.UID != runs[vm.Name] || i.Status.Phase != kubevirt.PhaseRunning || i.Status.NodeName == from {
			t.Errorf("%s is on %s: %s, %s", vm.Name, i.Status.NodeName, i.Status.Phase, i.UID)
		}
		nothingOfMoves(y, vm)
	}
}

// evict asks for the eviction of a machine's launcher, which is refused in these words so that a drain tries again.
func evict(y *fixture.Machines, vm *kubevirt.VirtualMachine, says string, dryRun ...string) {
	y.T.Helper()
	err := y.Client.PolicyV1().Evictions(y.Namespace).Evict(y.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: y.Namespace, Name: y.LauncherOf(vm).Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun}})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), says) {
		y.T.Errorf("the eviction of %s: %v", vm.Name, err)
	}
}

// leftToOthers: a machine whose evictionStrategy is External stays where it is when its node is drained, and reports that it has
// to leave; only an external controller moves it.
func leftToOthers(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	before, launcher := y.InstanceOf(y.Context(), vm), y.LauncherOf(vm).UID
	node := before.Status.NodeName
	if before.Status.EvacuationNodeName != "" {
		y.T.Errorf("%s is to leave %s before anybody asked", vm.Name, before.Status.EvacuationNodeName)
	}
	evict(y, vm, "its evictionStrategy is External")
	y.Wait("the instance to say that it is to leave", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i.Status.EvacuationNodeName == node, fmt.Sprintf("%+v", i.Status)
	})
	evict(y, vm, "its evictionStrategy is External")
	i := y.InstanceOf(y.Context(), vm)
	if i.UID != before.UID || i.Status.NodeName != node || i.Status.Phase != kubevirt.PhaseRunning || i.DeletionTimestamp != nil || y.LauncherOf(vm).UID != launcher {
		y.T.Errorf("it did not stay on %s as it was: %s in %+v", node, i.UID, i.Status)
	}
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := y.Kube.List(y.Context(), &all, client.InNamespace(y.Namespace)); err != nil {
		y.T.Fatal(err)
	}
	for _, m := range all.Items {
		if from, made := m.Annotations[kubevirt.AnnEvacuation]; made || !m.Ended() {
			y.T.Errorf("migration %s from %q was made, or goes on", m.Name, from)
		}
	}
}

// twoAtOnce: of the guests that left a node, two at a time were on their way, and each other began when one of them had ended.
func twoAtOnce(y *fixture.Machines, node string, guests int) {
	y.T.Helper()
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := y.Kube.List(y.Context(), &all, client.InNamespace(y.Namespace)); err != nil {
		y.T.Fatal(err)
	}
	type span struct{ begin, end time.Time }
	var spans []span
	for _, m := range all.Items {
		if m.Annotations[kubevirt.AnnEvacuation] != node || !m.Ended() {
			y.T.Errorf("migration %s is not one from %s that ended", m.Name, node)
			continue
		}
		s := span{end: m.Status.MigrationState.EndTimestamp.Time}
		for _, p := range m.Status.PhaseTransitionTimestamps {
			if p.Phase == kubevirt.MigrationScheduling || p.Phase == kubevirt.MigrationScheduled { // the scheduler may be too quick for the former
				s.begin = p.PhaseTransitionTimestamp.Time
				break
			}
		}
		spans = append(spans, s)
	}
	most := 0
	for _, s := range spans {
		under := 0 // way when it had begun; one that ended in the same second made room for it
		for _, o := range spans {
			if !o.begin.After(s.begin) && (o.end.After(s.begin) || o == s) {
				under++
			}
		}
		most = max(most, under)
	}
	if len(spans) < guests || most > 2 {
		y.T.Errorf("%d migrations, of which %d at once: %v", len(spans), most, spans)
	}
}

// elsewhere: the machines run on another node, as the same instances, and nothing asks them to leave any more.
func elsewhere(y *fixture.Machines, node string, vms []*kubevirt.VirtualMachine, runs map[string]types.UID) {
	y.T.Helper()
	for _, vm := range vms {
		y.Wait(vm.Name+" to be in one launcher elsewhere", fixture.MovePatience, func(ctx context.Context) (bool, string) {
			_, launchers := y.PodsOf(ctx, vm)
			i := y.InstanceOf(ctx, vm)
			return len(launchers) == 1 && launchers[0].Spec.NodeName != node && i.Status.NodeName == launchers[0].Spec.NodeName && i.Status.EvacuationNodeName == "",
				fmt.Sprintf("%d launchers, %s on %s", len(launchers), i.Status.Phase, i.Status.NodeName)
		})
		if i := y.InstanceOf(y.Context(), vm); i.UID != runs[vm.Name] || i.Status.Phase != kubevirt.PhaseRunning {
			y.T.Errorf("%s was started again, or is %s", vm.Name, i.Status.Phase)
		}
	}
}

// TestVirtctlMigrate: a machine is moved, and kept where it is, with virtctl.
func TestVirtctlMigrate(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	vm := y.MovableMachine("web")
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	from := y.InstanceOf(y.Context(), vm).Status.NodeName
	before := y.LauncherOf(vm).UID

	refused := func(says string, args ...string) {
		t.Helper()
		if o := v.Run(args...); o.Code != 1 || !strings.Contains(o.Err, says) {
			t.Errorf("virtctl %s: code %d\n%s%s", strings.Join(args, " "), o.Code, o.Out, o.Err)
		}
	}
	refused("Found no migration to cancel for web", "migrate-cancel", "web")
	refused("not found", "migrate", "nobody")
	if out := v.Must("migrate", "web", "--dry-run"); out != "Dry Run execution\nVM web was scheduled to migrate\n" {
		t.Errorf("migrate --dry-run says %q", out)
	}
	out := v.Run("migrate", "web", "--addedNodeSelector=e2e.berth.dev/nowhere="+y.Namespace)
	if out.Code != 0 || out.Out != "VM web was scheduled to migrate\n" || !strings.Contains(out.Err, "break when it moves") {
		t.Errorf("migrate: code %d, %q, %q", out.Code, out.Out, out.Err)
	}
	y.Wait("a migration that finds no node", fixture.MovePatience, func(context.Context) (bool, string) {
		said := y.Kubectl("get", "vmim", "-o", "wide", "-l", kubevirt.LabelMigrated+"=web")
		return strings.Contains(said, "TargetUnschedulable"), said
	})
	refused("in-flight migration detected", "migrate", "web")
	if out := v.Must("migrate-cancel", "web"); out != "VM web was scheduled to migrate-cancel\n" {
		t.Errorf("migrate-cancel says %q", out)
	}
	y.Wait("the migration to be gone", fixture.MovePatience, func(context.Context) (bool, string) {
		said := y.Kubectl("get", "vmim")
		return strings.Contains(said, "No resources found"), said
	})
	if i := y.InstanceOf(y.Context(), vm); i.Status.NodeName != from || y.LauncherOf(vm).UID != before {
		t.Errorf("a migration that was cancelled moved the machine to %s", i.Status.NodeName)
	}

	began := time.Now()
	v.Must("migrate", "web")
	y.Wait("the machine to be elsewhere", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		_, launchers := y.PodsOf(ctx, vm)
		return i.Status.NodeName != from && len(launchers) == 1 && launchers[0].UID != before, fmt.Sprintf("%d launchers, on %s", len(launchers), i.Status.NodeName)
	})
	t.Logf("it took %s", time.Since(began).Round(time.Second))
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if o := v.Run("pause", "vm", "web"); o.Code != 0 {
		t.Errorf("a machine that has moved cannot be paused: %s", o.Err)
	}
	v.Must("stop", "web", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	v.Must("migrate", "web")
	y.Wait("a migration that says that there is nothing to move", fixture.MovePatience, func(context.Context) (bool, string) {
		said := y.Kubectl("get", "vmim", "-o", "wide", "-l", kubevirt.LabelMigrated+"=web")
		return strings.Contains(said, "goes where there is room"), said
	})
}
