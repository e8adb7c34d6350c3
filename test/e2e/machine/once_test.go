//go:build e2e

package machine

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestLauncherDeletedEndsItsInstance: an instance is one run. When the pod of its launcher is deleted it ends, and the run strategy of its
// machine decides about another, with another UID. An instance without a machine stays as it ended.
func TestLauncherDeletedEndsItsInstance(t *testing.T) {
	t.Parallel()
	for strategy, again := range map[kubevirt.RunStrategy]bool{
		kubevirt.RunAlways: true, kubevirt.RunRerunOnFailure: true, kubevirt.RunOnce: false, kubevirt.RunManual: false,
	} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			y := fixture.NewMachines(t)
			vm := y.TinyMachine("deleted", fixture.ClassDisk)
			vm.Spec.RunStrategy = &strategy
			y.CreateMachine(vm)
			if strategy == kubevirt.RunManual {
				ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
					s.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StartRequest}}
				})
			}
			y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
			first := dropLauncher(y, vm)
			if again {
				y.Wait("another instance that runs", fixture.BootPatience, func(ctx context.Context) (bool, string) {
					i := y.InstanceOf(ctx, vm)
					return i != nil && i.UID != first && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%+v", i)
				})
				return
			}
			staysFailed(y, vm, first)
			y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)
			if strategy == kubevirt.RunManual { // and it can be started again
				fixture.NewVirtctl(t, y.Env).Must("start", vm.Name)
				y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
				if i := y.InstanceOf(t.Context(), vm); i.UID == first {
					t.Error("it runs in the instance that has ended")
				}
			}
		})
	}
	t.Run("no machine", func(t *testing.T) {
		t.Parallel()
		y := fixture.NewMachines(t)
		vm := y.TinyMachine("bare")
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: vm.Name}, Spec: vm.Spec.Template.Spec}
		if err := y.Kube.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		y.Wait("the instance to run", fixture.BootPatience, func(ctx context.Context) (bool, string) {
			err := y.Kube.Get(ctx, client.ObjectKeyFromObject(i), i)
			return err == nil && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%v %+v", err, i.Status)
		})
		first := dropLauncher(y, vm)
		staysFailed(y, vm, first)
	})
}

// dropLauncher deletes the pod of a machine's launcher and returns the UID of the instance that it ran.
func dropLauncher(y *fixture.Machines, vm *kubevirt.VirtualMachine) types.UID {
	y.T.Helper()
	first := y.InstanceOf(y.Context(), vm)
	_, launchers := y.PodsOf(y.Context(), vm)
	if first == nil || len(launchers) != 1 {
		y.T.Fatalf("%d launchers of %+v", len(launchers), first)
	}
	y.Kubectl("delete", "pod", launchers[0].Name)
	return first.UID
}

// staysFailed waits until the instance has failed, and looks that nothing starts it again.
func staysFailed(y *fixture.Machines, vm *kubevirt.VirtualMachine, run types.UID) {
	y.T.Helper()
	failed := func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		_, launchers := y.PodsOf(ctx, vm)
		return i != nil && i.UID == run && i.Status.Phase == kubevirt.PhaseFailed && len(launchers) == 0, fmt.Sprintf("%d launchers of %+v", len(launchers), i)
	}
	y.Wait("the instance to have failed", fixture.Patience, failed)
	y.Stays("the instance as it ended", 10*time.Second, failed)
}
