//go:build e2e

package e2e

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
	"github.com/berth-vm/berth/test/e2e/framework"
)

// draining is how long the small guests of one node may take to others, two at a time.
const draining = 2 * moving

// preferring is a machine that likes a node and can run on any. Its pods and its instance have the test's label.
func (y *yard) preferring(name, node string, strategy kubevirt.EvictionStrategy) *kubevirt.VirtualMachine {
	vm := y.tiny(name)
	t := vm.Spec.Template
	t.ObjectMeta.Labels = map[string]string{"e2e.berth.dev/group": y.Namespace}
	t.Spec.EvictionStrategy = &strategy
	t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100, Preference: oneOf(node).RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]}}}}
	return vm
}

// kubectlDrain empties a node of the test's pods as an administrator does, and undoes at once that the node takes no other pods: the
// other tests need it.
func (y *yard) kubectlDrain(node string) string {
	y.T.Helper()
	ctx, cancel := context.WithTimeout(y.Context(), draining)
	defer cancel()
	drain := exec.CommandContext(ctx, "../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(y.T), "drain", node, "--ignore-daemonsets",
		"--delete-emptydir-data", "--pod-selector=e2e.berth.dev/group="+y.Namespace, "--timeout="+draining.String())
	var said strings.Builder
	drain.Stdout, drain.Stderr = &said, &said
	if err := drain.Start(); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("the drain to begin", patience, func(ctx context.Context) (bool, string) {
		n, err := y.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil && n.Spec.Unschedulable, fmt.Sprint(err)
	})
	y.uncordon(node)
	if err := drain.Wait(); err != nil {
		y.T.Fatalf("kubectl drain %s: %v\n%s", node, err, said.String())
	}
	return said.String()
}

func (y *yard) uncordon(node string) {
	y.T.Helper()
	patch := []byte(`{"spec":{"unschedulable":false}}`)
	if _, err := y.Client.CoreV1().Nodes().Patch(context.WithoutCancel(y.Context()), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		y.T.Fatal(err)
	}
}

// TestDrain: five machines that are to move leave a node that is emptied, by virtctl vm evacuate and by kubectl drain, and none of them is
// started again; one that would be shut down stays with virtctl.
func TestDrain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	node := y.ReadyNodes()[0]
	var movers []*kubevirt.VirtualMachine
	for n := range 5 {
		movers = append(movers, y.preferring(fmt.Sprintf("mover-%d", n), node, kubevirt.EvictLiveMigrate))
		y.create(movers[n])
	}
	stays := y.preferring("stays", node, kubevirt.EvictNone)
	y.create(stays)
	runs := map[string]types.UID{}
	for _, vm := range append(movers, stays) {
		y.status(vm, kubevirt.StatusRunning, boot)
		i := y.instance(y.Context(), vm)
		runs[vm.Name] = i.UID
		if i.Status.NodeName != node {
			t.Fatalf("%s is on %s although it prefers %s", vm.Name, i.Status.NodeName, node)
		}
	}

	said := v.run("vm", "evacuate", node, "--cordon=false", "--selector=e2e.berth.dev/group="+y.Namespace, "--timeout="+draining.String())
	t.Logf("virtctl vm evacuate: code %d\n%s%s", said.code, said.out, said.err)
	if said.code != 1 || !strings.Contains(said.err, "machines stay on node "+node+": "+y.Namespace+"/stays") {
		t.Errorf("it does not say that a machine stays")
	}
	y.elsewhere(node, movers, runs)
	y.twoAtOnce(node, len(movers))
	if i := y.instance(y.Context(), stays); i.UID != runs["stays"] || i.Status.NodeName != node {
		t.Errorf("a machine that was to stay is %s on %s", i.UID, i.Status.NodeName)
	}

	from := y.instance(y.Context(), movers[0]).Status.NodeName
	y.evict(movers[0], "Eviction triggered evacuation of VMI", metav1.DryRunAll)
	out := y.kubectlDrain(from)
	t.Logf("kubectl drain:\n%s", out)
	has(t, out, "Eviction triggered evacuation of VMI", "drained")
	y.elsewhere(from, movers[:1], runs)
	for _, vm := range movers {
		if i := y.instance(y.Context(), vm); i.UID != runs[vm.Name] || i.Status.Phase != kubevirt.PhaseRunning || i.Status.NodeName == from {
			t.Errorf("%s is on %s: %s, %s", vm.Name, i.Status.NodeName, i.Status.Phase, i.UID)
		}
		y.nothingOfMoves(vm)
	}
}

// evict asks for the eviction of a machine's launcher, which is refused in these words so that whoever drains its node asks again.
func (y *yard) evict(vm *kubevirt.VirtualMachine, says string, dryRun ...string) {
	y.T.Helper()
	err := y.Client.PolicyV1().Evictions(y.Namespace).Evict(y.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: y.Namespace, Name: y.launcherOf(vm).Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun}})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), says) {
		y.T.Errorf("the eviction of %s: %v", vm.Name, err)
	}
}

// leftToOthers: a machine whose evictionStrategy is External stays where it is when its node is drained, and shows that it is to leave; nobody
// moves it but whoever manages it.
func (y *yard) leftToOthers(vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	before, launcher := y.instance(y.Context(), vm), y.launcherOf(vm).UID
	node := before.Status.NodeName
	if before.Status.EvacuationNodeName != "" {
		y.T.Errorf("%s is to leave %s before anybody asked", vm.Name, before.Status.EvacuationNodeName)
	}
	y.evict(vm, "its evictionStrategy is External")
	y.Wait("the instance to say that it is to leave", patience, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		return i.Status.EvacuationNodeName == node, fmt.Sprintf("%+v", i.Status)
	})
	y.evict(vm, "its evictionStrategy is External")
	i := y.instance(y.Context(), vm)
	if i.UID != before.UID || i.Status.NodeName != node || i.Status.Phase != kubevirt.PhaseRunning || i.DeletionTimestamp != nil || y.launcherOf(vm).UID != launcher {
		y.T.Errorf("it did not stay on %s as it was: %s in %+v", node, i.UID, i.Status)
	}
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := y.kube.List(y.Context(), &all, client.InNamespace(y.Namespace)); err != nil {
		y.T.Fatal(err)
	}
	for _, m := range all.Items {
		if from, made := m.Annotations[kubevirt.AnnEvacuation]; made || !m.Ended() {
			y.T.Errorf("migration %s from %q was made, or goes on", m.Name, from)
		}
	}
}

// twoAtOnce: of the guests that left a node, two at a time were on their way, and each other began when one of them had ended.
func (y *yard) twoAtOnce(node string, guests int) {
	y.T.Helper()
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := y.kube.List(y.Context(), &all, client.InNamespace(y.Namespace)); err != nil {
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

func (y *yard) launcherOf(vm *kubevirt.VirtualMachine) *corev1.Pod {
	y.T.Helper()
	_, launchers := y.pods(y.Context(), vm)
	if len(launchers) != 1 {
		y.T.Fatalf("%s has %d launchers", vm.Name, len(launchers))
	}
	return &launchers[0]
}

// elsewhere: the machines run on another node, as the same instances, and nothing asks them to leave any more.
func (y *yard) elsewhere(node string, vms []*kubevirt.VirtualMachine, runs map[string]types.UID) {
	y.T.Helper()
	for _, vm := range vms {
		y.Wait(vm.Name+" to be in one launcher elsewhere", moving, func(ctx context.Context) (bool, string) {
			_, launchers := y.pods(ctx, vm)
			i := y.instance(ctx, vm)
			return len(launchers) == 1 && launchers[0].Spec.NodeName != node && i.Status.NodeName == launchers[0].Spec.NodeName && i.Status.EvacuationNodeName == "",
				fmt.Sprintf("%d launchers, %s on %s", len(launchers), i.Status.Phase, i.Status.NodeName)
		})
		if i := y.instance(y.Context(), vm); i.UID != runs[vm.Name] || i.Status.Phase != kubevirt.PhaseRunning {
			y.T.Errorf("%s was started again, or is %s", vm.Name, i.Status.Phase)
		}
	}
}

// TestVirtctlMigrate: a machine is moved, and kept where it is, with virtctl.
func TestVirtctlMigrate(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	vm := y.mover("web")
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	from := y.instance(y.Context(), vm).Status.NodeName
	before := y.launcherOf(vm).UID

	refused := func(says string, args ...string) {
		t.Helper()
		if o := v.run(args...); o.code != 1 || !strings.Contains(o.err, says) {
			t.Errorf("virtctl %s: code %d\n%s%s", strings.Join(args, " "), o.code, o.out, o.err)
		}
	}
	refused("Found no migration to cancel for web", "migrate-cancel", "web")
	refused("not found", "migrate", "nobody")
	if out := v.must("migrate", "web", "--dry-run"); out != "Dry Run execution\nVM web was scheduled to migrate\n" {
		t.Errorf("migrate --dry-run says %q", out)
	}
	out := v.run("migrate", "web", "--addedNodeSelector=e2e.berth.dev/nowhere="+y.Namespace)
	if out.code != 0 || out.out != "VM web was scheduled to migrate\n" || !strings.Contains(out.err, "break when it moves") {
		t.Errorf("migrate: code %d, %q, %q", out.code, out.out, out.err)
	}
	y.Wait("a migration that finds no node", moving, func(context.Context) (bool, string) {
		said := y.kubectl("get", "vmim", "-o", "wide", "-l", kubevirt.LabelMigrated+"=web")
		return strings.Contains(said, "TargetUnschedulable"), said
	})
	refused("in-flight migration detected", "migrate", "web")
	if out := v.must("migrate-cancel", "web"); out != "VM web was scheduled to migrate-cancel\n" {
		t.Errorf("migrate-cancel says %q", out)
	}
	y.Wait("the migration to be gone", moving, func(context.Context) (bool, string) {
		said := y.kubectl("get", "vmim")
		return strings.Contains(said, "No resources found"), said
	})
	if i := y.instance(y.Context(), vm); i.Status.NodeName != from || y.launcherOf(vm).UID != before {
		t.Errorf("a migration that was cancelled moved the machine to %s", i.Status.NodeName)
	}

	began := time.Now()
	v.must("migrate", "web")
	y.Wait("the machine to be elsewhere", moving, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		_, launchers := y.pods(ctx, vm)
		return i.Status.NodeName != from && len(launchers) == 1 && launchers[0].UID != before, fmt.Sprintf("%d launchers, on %s", len(launchers), i.Status.NodeName)
	})
	t.Logf("it took %s", time.Since(began).Round(time.Second))
	y.status(vm, kubevirt.StatusRunning, boot)
	if o := v.run("pause", "vm", "web"); o.code != 0 {
		t.Errorf("a machine that has moved cannot be paused: %s", o.err)
	}
	v.must("stop", "web", "--force", "--grace-period=0")
	y.status(vm, kubevirt.StatusStopped, boot)
	v.must("migrate", "web")
	y.Wait("a migration that says that there is nothing to move", moving, func(context.Context) (bool, string) {
		said := y.kubectl("get", "vmim", "-o", "wide", "-l", kubevirt.LabelMigrated+"=web")
		return strings.Contains(said, "goes where there is room"), said
	})
}
