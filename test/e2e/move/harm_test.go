//go:build e2e

package move

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// beginMove asks for a migration and waits until its guest is being sent.
func beginMove(y *fixture.Machines, vm *kubevirt.VirtualMachine, name string) *kubevirt.VirtualMachineInstanceMigration {
	y.T.Helper()
	m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name},
		Spec: kubevirt.MigrationSpec{VMIName: vm.Name}}
	if err := y.Kube.Create(y.Context(), m); err != nil {
		y.T.Fatal(err)
	}
	untilSent(y, m)
	return m
}

func untilSent(y *fixture.Machines, m *kubevirt.VirtualMachineInstanceMigration) {
	y.T.Helper()
	y.Wait("migration "+m.Name+" to send the guest", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err.Error()
		}
		return m.Status.Phase == kubevirt.MigrationRunning || m.Ended(), fmt.Sprintf("%s: %s", m.Status.Phase, fixture.MigrationSays(m))
	})
}

// endMove waits for a migration to end or to be gone.
func endMove(y *fixture.Machines, vm *kubevirt.VirtualMachine, m *kubevirt.VirtualMachineInstanceMigration) {
	y.T.Helper()
	y.Wait("migration "+m.Name+" to end", fixture.MovePatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(m), m); client.IgnoreNotFound(err) == nil && err != nil {
			return true, ""
		} else if err != nil {
			return false, err.Error()
		}
		return m.Ended(), fmt.Sprintf("%s: %s", m.Status.Phase, fixture.MigrationSays(m))
	})
	y.T.Logf("migration %s: %s: %s", m.Name, m.Status.Phase, fixture.MigrationSays(m))
	y.Wait("one launcher to be left, which runs the guest", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		_, launchers := y.PodsOf(ctx, vm)
		i := y.InstanceOf(ctx, vm)
		return len(launchers) == 1 && i != nil && i.Status.Phase == kubevirt.PhaseRunning && i.DeletionTimestamp == nil, fmt.Sprintf("%d launchers", len(launchers))
	})
}

// ofMove is the launcher that a migration's guest goes to.
func ofMove(y *fixture.Machines, vm *kubevirt.VirtualMachine, m *kubevirt.VirtualMachineInstanceMigration) *corev1.Pod {
	y.T.Helper()
	_, launchers := y.PodsOf(y.Context(), vm)
	for i := range launchers {
		if s := m.Status.MigrationState; s != nil && launchers[i].Name == s.TargetPod {
			return &launchers[i]
		}
	}
	return nil
}

// changesBeside changes the first volume of a machine to a claim on its own node. While a user's pod may write to it, that is
// refused; then the disk is sent there, over its old content, and the machine stays on its node.
func changesBeside(y *fixture.Machines, vm *kubevirt.VirtualMachine, volume string) {
	y.T.Helper()
	i := y.InstanceOf(y.Context(), vm)
	y.Create(framework.Claim{Name: "beside", Class: "localdisk", Size: "256Mi"})
	y.Start(framework.Pod{Name: "user", Node: i.Status.NodeName, Claims: []string{"beside"}, Script: "echo other >/beside/disk.img; chmod 666 /beside/disk.img; sleep 3600"})
	y.WaitRunning("user")
	y.Kubectl("patch", "virtualmachine", vm.Name, "--type=json", "-p", `[{"op": "add", "path": "/spec/updateVolumesStrategy", "value": "Migration"},
		{"op": "replace", "path": "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName", "value": "beside"}]`)
	y.Wait("the machine to say that a pod has the claim", fixture.Patience, func(ctx context.Context) (bool, string) {
		said := ""
		for _, c := range y.InstanceOf(ctx, vm).Status.Conditions {
			if c.Type == "VolumesChange" {
				said = c.Message
			}
		}
		return strings.Contains(said, "pod user"), said
	})
	y.Delete("user")
	inClaim(y, vm, volume, "beside")
	now, node := y.InstanceOf(y.Context(), vm), i.Status.NodeName
	if s := now.Status.MigrationState; now.UID != i.UID || now.Status.NodeName != node || s == nil || s.SourceNode != node || s.TargetNode != node {
		y.T.Errorf("it was on %s and is on %s, started again: %t; it says of its migration %+v", node, now.Status.NodeName, now.UID != i.UID, s)
	}
}

// TestMigrationHarm: a volume is changed to another claim of the same node; then a migration that is cancelled, whose target ends or whose source ends on the way leaves one guest with its data, and
// nothing else; one that was too late to be stopped has moved.
func TestMigrationHarm(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "256Mi"})
	vm := y.MovableMachine("harmed",
		kubevirt.Volume{Name: "files", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "files"}}},
		kubevirt.Volume{Name: "empty", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "write", 1, "files", "empty")
	changesBeside(y, vm, "files")
	y.RunPattern(vm, "verify", 1, "files", "empty")
	y.AnswerTo(vm, fmt.Sprintf("write serial=files %d %d 9", 64<<20, 128<<20)) // so that sending takes a while
	first := y.InstanceOf(t.Context(), vm).UID

	m := beginMove(y, vm, "cancelled")
	if err := y.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	endMove(y, vm, m)
	y.RunPattern(vm, "verify", 1, "files", "empty")

	m = beginMove(y, vm, "target-ends")
	if p := ofMove(y, vm, m); p != nil {
		y.Kubectl("delete", "pod", p.Name, "--wait=false", "--grace-period=1")
	}
	endMove(y, vm, m)
	y.RunPattern(vm, "verify", 1, "files", "empty")
	y.RunPattern(vm, "write", 2, "files", "empty")
	if got := y.InstanceOf(t.Context(), vm).UID; got != first {
		t.Errorf("the machine was started again")
	}

	m = beginMove(y, vm, "source-ends")
	from := y.InstanceOf(t.Context(), vm)
	if s := m.Status.MigrationState; s != nil && !m.Ended() {
		out, err := exec.CommandContext(t.Context(), "../../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "-n", y.Namespace, "exec", s.SourcePod, "-c", "compute", "--",
			"sh", "-c", "for p in /proc/[0-9]*; do grep -q qemu-system $p/comm && kill -9 ${p#/proc/}; done; true").CombinedOutput()
		if err != nil {
			t.Logf("the source was faster: %v %s", err, out)
		}
	}
	endMove(y, vm, m)
	if y.InstanceOf(t.Context(), vm).UID != from.UID {
		y.GuestSays(vm, "berth-guest: ready")
	}
	y.RunPattern(vm, "verify", 2, "files")
	y.Wait("no claim of a migration to be left but the one that has the disk", fixture.Patience, func(context.Context) (bool, string) {
		all := claimNames(y)
		_, launchers := y.PodsOf(y.Context(), vm)
		others := slices.DeleteFunc(slices.Clone(all), func(n string) bool {
			return !strings.HasPrefix(n, "move-") || slices.ContainsFunc(launchers, func(p corev1.Pod) bool { return mountsClaim(p, n) })
		})
		return len(others) == 0, strings.Join(all, " ")
	})
	nothingOfMoves(y, vm)
}

// mountsClaim: the pod has the claim among its volumes.
func mountsClaim(p corev1.Pod, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
