//go:build e2e

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestMachineLife is a machine from its first start to its last, with the test guest in it: cloud-init, console, disks that
// come and go while it runs, data that outlives a restart, and an end of its own.
func TestMachineLife(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("life", "localdisk")
	fixture.BootKernel(vm, "disks")
	spec := &vm.Spec.Template.Spec
	vm.Spec.RunStrategy = new(kubevirt.RunManual)
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "life-0", Serial: "FIRST"}}
	spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: "seed", VolumeSource: kubevirt.VolumeSource{
		CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "#berth-guest\nwrite serial=FIRST 0 65536 7\n"}}})
	spec.ReadinessProbe = &kubevirt.Probe{GuestAgentPing: &kubevirt.GuestAgentPing{}, PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 100}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)

	t.Log("started by a request")
	start := kubevirt.StateChangeRequest{Action: kubevirt.StartRequest}
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) { s.StateChangeRequests = []kubevirt.StateChangeRequest{start} })
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "user-data| write serial=FIRST 0 65536 7")
	y.GuestSays(vm, "write serial=FIRST 0 65536 7: ")
	y.Wait("the guest's agent to answer the readiness probe", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.Ready, fixture.ReadyMessage(vm)
	})

	t.Log("a disk that stays, bound by the machine's node")
	y.CreateBlankVolume("stays", "localdisk")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: fixture.AddVolumeOptions("stays", kubevirt.BusVirtio)}}
	})
	y.WaitPlugged(vm, "stays")
	y.GuestSays(vm, "serial=stays size=")
	y.TypeLine(vm, "write serial=stays 4096 65536 8")
	y.GuestSays(vm, "write serial=stays 4096 65536 8: ")
	_, launchers := y.PodsOf(t.Context(), vm)
	if at := framework.VolumeNode(y.WaitBound("stays")); at != launchers[0].Spec.NodeName {
		t.Errorf("the disk is on %s, the machine on %s", at, launchers[0].Spec.NodeName)
	}

	t.Log("a disk for this run, in a directory")
	y.CreateBlankVolume("goes", "local")
	changeInstance(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "goes", VolumeSource: kubevirt.VolumeSource{
			DataVolume: &kubevirt.DataVolumeSource{Name: "goes", Hotpluggable: true}}})
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, *fixture.AddVolumeOptions("goes", kubevirt.BusSCSI).Disk)
	})
	y.WaitPlugged(vm, "goes")
	y.GuestSays(vm, "disk added sda bus=scsi serial=goes")
	changeInstance(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = slices.DeleteFunc(s.Volumes, func(v kubevirt.Volume) bool { return v.Name == "goes" })
		s.Domain.Devices.Disks = slices.DeleteFunc(s.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == "goes" })
	})
	y.GuestSays(vm, "disk removed sda")
	y.Wait("nothing of the removed disk to be left", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		pods, err := y.Client.CoreV1().Pods(y.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "berth.dev/volume=goes"})
		return err == nil && i != nil && fixture.VolumeStatusOf(i, "goes") == nil && len(pods.Items) == 0, fmt.Sprintf("%+v, %d pods", fixture.VolumeStatusOf(i, "goes"), len(pods.Items))
	})

	t.Log("rebooted by its guest, which is nobody else's business")
	y.TypeLine(vm, "reboot")
	y.GuestSaysAgain(vm, "berth-guest: ready", 2)
	y.TypeLine(vm, "verify serial=stays 4096 65536 8")
	y.GuestSays(vm, "verify serial=stays 4096 65536 8: same")
	if _, now := y.PodsOf(t.Context(), vm); len(now) != 1 || now[0].UID != launchers[0].UID || now[0].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the guest rebooted and its launcher is another: %+v, was %s", now, launchers[0].UID)
	}

	t.Log("restarted with what it has now")
	old := y.InstanceOf(t.Context(), vm)
	pressed := overhear(y, vm, "power button pressed")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StopRequest, UID: &old.UID}, start}
	})
	y.Wait("the next instance to run", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i != nil && i.UID != old.UID && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%v", i)
	})
	if !pressed() {
		t.Error("the guest was switched off without being asked to shut down")
	}
	y.GuestSays(vm, "ready")
	y.TypeLine(vm, "verify serial=FIRST 0 65536 7")
	y.GuestSays(vm, "verify serial=FIRST 0 65536 7: same")
	y.TypeLine(vm, "verify serial=stays 4096 65536 8")
	y.GuestSays(vm, "verify serial=stays 4096 65536 8: same")

	t.Log("removed for good, from a machine that was started with it")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "stays"}}}
	})
	y.GuestSays(vm, "disk removed vd")
	t.Log("wanted after all, and then not")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: fixture.AddVolumeOptions("stays", kubevirt.BusVirtio)}}
	})
	y.GuestSays(vm, "disk added vd")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "stays"}}}
	})
	y.GuestSaysAgain(vm, "disk removed vd", 2)

	t.Log("the guest ends it")
	y.TypeLine(vm, "poweroff")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	if i := y.InstanceOf(t.Context(), vm); i == nil || i.Status.Phase != kubevirt.PhaseSucceeded || !strings.Contains(fixture.ReadyMessage(vm), "powered off") {
		t.Errorf("after the guest powered off: %s, %+v", fixture.ReadyMessage(vm), i)
	}
	if slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == "stays" }) {
		t.Error("the machine's template still has the volume that was removed for good")
	}
}

// changeInstance changes the present run alone, as the aggregated API does.
func changeInstance(y *fixture.Machines, vm *kubevirt.VirtualMachine, change func(*kubevirt.VirtualMachineInstanceSpec)) {
	y.T.Helper()
	y.Wait("the instance to be changed", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		if i == nil {
			return false, "no instance"
		}
		next := i.DeepCopy()
		change(&next.Spec)
		err := y.Kube.Patch(ctx, next, client.MergeFromWithOptions(i, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}
