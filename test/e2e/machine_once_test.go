//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
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
			y := newYard(t)
			vm := y.tiny("deleted", classDisk)
			vm.Spec.RunStrategy = &strategy
			y.create(vm)
			if strategy == kubevirt.RunManual {
				y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
					s.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StartRequest}}
				})
			}
			y.status(vm, kubevirt.StatusRunning, boot)
			first := y.dropLauncher(vm)
			if again {
				y.Wait("another instance that runs", boot, func(ctx context.Context) (bool, string) {
					i := y.instance(ctx, vm)
					return i != nil && i.UID != first && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%+v", i)
				})
				return
			}
			y.staysFailed(vm, first)
			y.status(vm, kubevirt.StatusStopped, patience)
			if strategy == kubevirt.RunManual { // and it can be started again
				newTool(t, y.Env).must("start", vm.Name)
				y.status(vm, kubevirt.StatusRunning, boot)
				if i := y.instance(t.Context(), vm); i.UID == first {
					t.Error("it runs in the instance that has ended")
				}
			}
		})
	}
	t.Run("no machine", func(t *testing.T) {
		t.Parallel()
		y := newYard(t)
		vm := y.tiny("bare")
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: vm.Name}, Spec: vm.Spec.Template.Spec}
		if err := y.kube.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		y.Wait("the instance to run", boot, func(ctx context.Context) (bool, string) {
			err := y.kube.Get(ctx, client.ObjectKeyFromObject(i), i)
			return err == nil && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%v %+v", err, i.Status)
		})
		first := y.dropLauncher(vm)
		y.staysFailed(vm, first)
	})
}

// dropLauncher deletes the pod of a machine's launcher and returns the UID of the instance that it ran.
func (y *yard) dropLauncher(vm *kubevirt.VirtualMachine) types.UID {
	y.T.Helper()
	first := y.instance(y.Context(), vm)
	_, launchers := y.pods(y.Context(), vm)
	if first == nil || len(launchers) != 1 {
		y.T.Fatalf("%d launchers of %+v", len(launchers), first)
	}
	y.kubectl("delete", "pod", launchers[0].Name)
	return first.UID
}

// staysFailed waits until the instance has failed, and looks that nothing starts it again.
func (y *yard) staysFailed(vm *kubevirt.VirtualMachine, run types.UID) {
	y.T.Helper()
	failed := func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		_, launchers := y.pods(ctx, vm)
		return i != nil && i.UID == run && i.Status.Phase == kubevirt.PhaseFailed && len(launchers) == 0, fmt.Sprintf("%d launchers of %+v", len(launchers), i)
	}
	y.Wait("the instance to have failed", patience, failed)
	y.Stays("the instance as it ended", 10*time.Second, failed)
}
