//go:build e2e

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestMachineCrash: a guest that panics, one whose QEMU dies and one that does not answer its liveness probe are failed
// runs. Some strategies run the machine again after a pause, the others leave it as it is; all say what happened.
func TestMachineCrash(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strategy kubevirt.RunStrategy
		words    string
		again    bool
	}{
		"panics":           {kubevirt.RunAlways, "the guest crashed", true},
		"panics-by-itself": {kubevirt.RunManual, "the guest crashed", false},
		"killed":           {kubevirt.RunRerunOnFailure, "QEMU failed", true},
		"killed-once":      {kubevirt.RunOnce, "QEMU failed", false},
		"deaf":             {kubevirt.RunOnce, "a liveness probe that failed", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := fixture.NewMachines(t)
			vm := y.TinyMachine("crash")
			vm.Spec.RunStrategy = &c.strategy
			switch name {
			case "panics":
				fixture.BootKernel(vm, "disks")
			case "panics-by-itself":
				fixture.BootKernel(vm, "crash")
			case "deaf": // a guest without an operating system has no agent either
				vm.Spec.Template.Spec.LivenessProbe = &kubevirt.Probe{
					GuestAgentPing: &kubevirt.GuestAgentPing{}, InitialDelaySeconds: 5, PeriodSeconds: 1, FailureThreshold: 1}
			}
			y.CreateMachine(vm)
			if c.strategy == kubevirt.RunManual {
				ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
					s.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StartRequest}}
				})
			}
			y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
			first := y.InstanceOf(t.Context(), vm)
			switch name {
			case "panics":
				y.GuestSays(vm, "berth-guest: ready")
				y.TypeLine(vm, "crash")
			case "killed", "killed-once":
				killQEMU(y, vm)
			}
			crashed(y, vm, first, c.again)
			if !strings.Contains(fixture.ReadyMessage(vm), c.words) {
				t.Errorf("the machine does not say what happened (%s): %s", c.words, fixture.ReadyMessage(vm))
			}
		})
	}
}

// crashed waits until the first run of the machine has failed, and until the next runs if there is to be one.
func crashed(y *fixture.Machines, vm *kubevirt.VirtualMachine, first *kubevirt.VirtualMachineInstance, again bool) {
	y.T.Helper()
	status := kubevirt.StatusStopped
	if again {
		status = kubevirt.StatusCrashLoopBackOff
	}
	y.WaitStatus(vm, status, fixture.Patience)
	y.Wait("the run to have failed", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i != nil && i.UID == first.UID && i.Status.Phase == kubevirt.PhaseFailed, fmt.Sprintf("%+v", i)
	})
	if !again {
		return
	}
	y.Wait("the next run", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i != nil && i.UID != first.UID && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%+v", i)
	})
}

// killQEMU kills the guest's QEMU as the kernel does when memory runs out.
func killQEMU(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	_, launchers := y.PodsOf(y.Context(), vm)
	y.Kubectl("exec", launchers[0].Name, "-c", "compute", "--",
		"sh", "-c", "for p in /proc/[0-9]*; do grep -q qemu-system $p/comm && kill -9 ${p#/proc/}; done; true")
}
