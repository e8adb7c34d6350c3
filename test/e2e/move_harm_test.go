//go:build e2e

package e2e

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
	"github.com/berth-vm/berth/test/e2e/framework"
)

// beginMove asks for a migration and waits until its guest is being sent.
func (y *yard) beginMove(vm *kubevirt.VirtualMachine, name string) *kubevirt.VirtualMachineInstanceMigration {
	y.T.Helper()
	m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name},
		Spec: kubevirt.MigrationSpec{VMIName: vm.Name}}
	if err := y.kube.Create(y.Context(), m); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("migration "+name+" to send the guest", moving, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err.Error()
		}
		return m.Status.Phase == kubevirt.MigrationRunning || m.Ended(), fmt.Sprintf("%s: %s", m.Status.Phase, migrationSays(m))
	})
	return m
}

// endMove waits for a migration to end or to be gone.
func (y *yard) endMove(vm *kubevirt.VirtualMachine, m *kubevirt.VirtualMachineInstanceMigration) {
	y.T.Helper()
	y.Wait("migration "+m.Name+" to end", moving, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(m), m); client.IgnoreNotFound(err) == nil && err != nil {
			return true, ""
		} else if err != nil {
			return false, err.Error()
		}
		return m.Ended(), fmt.Sprintf("%s: %s", m.Status.Phase, migrationSays(m))
	})
	y.T.Logf("migration %s: %s: %s", m.Name, m.Status.Phase, migrationSays(m))
	y.Wait("one launcher to be left, which runs the guest", boot, func(ctx context.Context) (bool, string) {
		_, launchers := y.pods(ctx, vm)
		i := y.instance(ctx, vm)
		return len(launchers) == 1 && i != nil && i.Status.Phase == kubevirt.PhaseRunning && i.DeletionTimestamp == nil, fmt.Sprintf("%d launchers", len(launchers))
	})
}

// ofMove is the launcher that a migration's guest goes to.
func (y *yard) ofMove(vm *kubevirt.VirtualMachine, m *kubevirt.VirtualMachineInstanceMigration) *corev1.Pod {
	y.T.Helper()
	_, launchers := y.pods(y.Context(), vm)
	for i := range launchers {
		if s := m.Status.MigrationState; s != nil && launchers[i].Name == s.TargetPod {
			return &launchers[i]
		}
	}
	return nil
}

// TestMigrationHarm: a migration that is cancelled, whose target ends or whose source ends on the way leaves one guest with its data, and
// nothing else; one that was too late to be stopped has moved.
func TestMigrationHarm(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.Create(framework.Claim{Name: "files", Class: "localdisk", Size: "256Mi"})
	vm := y.mover("harmed",
		kubevirt.Volume{Name: "files", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "files"}}},
		kubevirt.Volume{Name: "empty", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.answer(vm, fmt.Sprintf("write serial=files %d %d 9", 64<<20, 128<<20)) // so that sending takes a while
	y.pattern(vm, "write", 1, "files", "empty")
	first := y.instance(t.Context(), vm).UID

	m := y.beginMove(vm, "cancelled")
	if err := y.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	y.endMove(vm, m)
	y.pattern(vm, "verify", 1, "files", "empty")

	m = y.beginMove(vm, "target-ends")
	if p := y.ofMove(vm, m); p != nil {
		y.kubectl("delete", "pod", p.Name, "--wait=false", "--grace-period=1")
	}
	y.endMove(vm, m)
	y.pattern(vm, "verify", 1, "files", "empty")
	y.pattern(vm, "write", 2, "files", "empty")
	if got := y.instance(t.Context(), vm).UID; got != first {
		t.Errorf("the machine was started again")
	}

	m = y.beginMove(vm, "source-ends")
	from := y.instance(t.Context(), vm)
	if s := m.Status.MigrationState; s != nil && !m.Ended() {
		out, err := exec.CommandContext(t.Context(), "../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "-n", y.Namespace, "exec", s.SourcePod, "-c", "compute", "--",
			"sh", "-c", "for p in /proc/[0-9]*; do grep -q qemu-system $p/comm && kill -9 ${p#/proc/}; done; true").CombinedOutput()
		if err != nil {
			t.Logf("the source was faster: %v %s", err, out)
		}
	}
	y.endMove(vm, m)
	if y.instance(t.Context(), vm).UID != from.UID {
		y.guestSays(vm, "berth-guest: ready")
	}
	y.pattern(vm, "verify", 2, "files")
	y.Wait("no claim of a migration to be left but the one that has the disk", patience, func(context.Context) (bool, string) {
		all, in := y.claimNames(), y.serving(vm, "files")
		others := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, "move-") || n == in })
		return len(others) == 0, strings.Join(all, " ")
	})
	y.nothingOfMoves(vm)
}
