//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestMachineDiskKept: a guest that does not give a disk back (this one has no operating system that could) is asked again,
// and the machine says so; the disk is not pulled from under it.
func TestMachineDiskKept(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	vm := y.tiny("keeper")
	y.create(vm)
	y.volume("kept", "localdisk")
	y.status(vm, kubevirt.StatusRunning, boot)
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: added("kept", kubevirt.BusVirtio)}}
	})
	y.plugged(vm, "kept")
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "kept"}}}
	})
	y.Wait("the machine to say that its guest keeps the disk", patience, func(ctx context.Context) (bool, string) {
		s := statusOf(y.instance(ctx, vm), "kept")
		return s != nil && s.Phase == kubevirt.VolumeDetaching && s.Reason == "GuestKeepsIt" &&
			strings.Contains(s.Message, "has not given it up; it is asked again"), fmt.Sprintf("%+v", s)
	})
	y.WaitEvent(vm.Name, patience, func(reason, message string) bool {
		return reason == "GuestKeepsIt" && strings.HasPrefix(message, "volume kept: ")
	})
	if i := y.instance(t.Context(), vm); i == nil || i.Status.Phase != kubevirt.PhaseRunning {
		t.Errorf("the machine does not go on: %+v", i)
	}
}
