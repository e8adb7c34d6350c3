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

// TestMachineDiskKept: a guest that does not give a disk back (this one has no operating system that could) is asked again,
// and the machine says so; the disk is not pulled from under it.
func TestMachineDiskKept(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("keeper")
	y.CreateMachine(vm)
	y.CreateBlankVolume("kept", "localdisk")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: fixture.AddVolumeOptions("kept", kubevirt.BusVirtio)}}
	})
	y.WaitPlugged(vm, "kept")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "kept"}}}
	})
	y.Wait("the machine to say that its guest keeps the disk", fixture.Patience, func(ctx context.Context) (bool, string) {
		s := fixture.VolumeStatusOf(y.InstanceOf(ctx, vm), "kept")
		return s != nil && s.Phase == kubevirt.VolumeDetaching && s.Reason == "GuestKeepsIt" &&
			strings.Contains(s.Message, "has not given it up; it is asked again"), fmt.Sprintf("%+v", s)
	})
	y.WaitEvent(vm.Name, fixture.Patience, func(reason, message string) bool {
		return reason == "GuestKeepsIt" && strings.HasPrefix(message, "volume kept: ")
	})
	if i := y.InstanceOf(t.Context(), vm); i == nil || i.Status.Phase != kubevirt.PhaseRunning {
		t.Errorf("the machine does not go on: %+v", i)
	}
}
