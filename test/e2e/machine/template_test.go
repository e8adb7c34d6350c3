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
)

// TestTemplateIsFollowed: a running machine gets and loses the hotpluggable disks and media of its template, as GitOps tools change it, and
// says which other changes wait for a restart.
func TestTemplateIsFollowed(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("follows", "localdisk")
	fixture.BootKernel(vm, "disks")
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "follows-0", Serial: "FIRST"}, cdDrive("drive")}
	spec.Volumes = append(spec.Volumes, hotVolume("from-start", "from-start"))
	for _, name := range []string{"from-start", "more", "first-medium", "second-medium"} {
		y.CreateBlankVolume(name, "localdisk")
	}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	run := y.InstanceOf(t.Context(), vm).UID
	if s := fixture.VolumeStatusOf(y.InstanceOf(t.Context(), vm), "from-start"); s == nil || s.HotplugVolume == nil || s.Phase != kubevirt.VolumeReady {
		t.Errorf("of a hotpluggable volume that was there at the start it says %+v", s)
	}

	t.Log("a disk is added to the template")
	editTemplate(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = append(s.Volumes, hotVolume("more", "more"))
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, *fixture.AddVolumeOptions("more", kubevirt.BusVirtio).Disk)
	})
	y.WaitPlugged(vm, "more")
	y.GuestSays(vm, "serial=more size=")

	t.Log("a medium is inserted, exchanged and ejected")
	media := func(claim string) {
		editTemplate(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Volumes = slices.DeleteFunc(s.Volumes, func(v kubevirt.Volume) bool { return v.Name == "drive" })
			if claim != "" {
				s.Volumes = append(s.Volumes, hotVolume("drive", claim))
			}
		})
	}
	for _, claim := range []string{"first-medium", "second-medium"} {
		media(claim)
		y.Wait("the drive to have "+claim, fixture.BootPatience, func(ctx context.Context) (bool, string) {
			s := fixture.VolumeStatusOf(y.InstanceOf(ctx, vm), "drive")
			return s != nil && s.Phase == kubevirt.VolumeReady && s.PersistentVolumeClaimInfo.ClaimName == claim, fmt.Sprintf("%+v", s)
		})
	}
	media("")
	unplugged(y, vm, "drive")

	t.Log("a change that waits for a restart")
	editTemplate(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.CPU = &kubevirt.CPU{Cores: 2} })
	restartRequired(y, vm, "domain.cpu;")
	editTemplate(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.CPU = nil })
	restartRequired(y, vm, "")

	t.Log("the disk is removed from the template")
	editTemplate(y, vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = slices.DeleteFunc(s.Volumes, func(v kubevirt.Volume) bool { return v.Name == "more" })
		s.Domain.Devices.Disks = slices.DeleteFunc(s.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == "more" })
	})
	y.GuestSays(vm, "disk removed vd")
	unplugged(y, vm, "more")
	if i := y.InstanceOf(t.Context(), vm); i == nil || i.UID != run || i.Status.Phase != kubevirt.PhaseRunning {
		t.Errorf("the guest is not the same any more: %+v", i)
	}
}

func cdDrive(name string) kubevirt.Disk {
	return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{Bus: kubevirt.BusSATA}}}
}

func hotVolume(name, of string) kubevirt.Volume {
	return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: of, Hotpluggable: true}}}
}

// editTemplate changes the machine's template, as kubectl edit does.
func editTemplate(y *fixture.Machines, vm *kubevirt.VirtualMachine, change func(*kubevirt.VirtualMachineInstanceSpec)) {
	y.T.Helper()
	y.Wait("the template to be changed", fixture.Patience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err.Error()
		}
		next := vm.DeepCopy()
		change(&next.Spec.Template.Spec)
		err := y.Kube.Patch(ctx, next, client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

// unplugged waits until nothing is left of a volume that was removed.
func unplugged(y *fixture.Machines, vm *kubevirt.VirtualMachine, volume string) {
	y.T.Helper()
	y.Wait("nothing of volume "+volume+" to be left", fixture.Patience, func(ctx context.Context) (bool, string) {
		pods, err := y.Client.CoreV1().Pods(y.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "berth.dev/volume=" + volume})
		if err != nil {
			return false, err.Error()
		}
		s := fixture.VolumeStatusOf(y.InstanceOf(ctx, vm), volume)
		return s == nil && len(pods.Items) == 0, fmt.Sprintf("%+v, %d pods", s, len(pods.Items))
	})
}

// restartRequired waits until the machine says that these fields wait for a restart; empty: that none does.
func restartRequired(y *fixture.Machines, vm *kubevirt.VirtualMachine, fields string) {
	y.T.Helper()
	y.Wait("RestartRequired to be about "+fields, fixture.Patience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err.Error()
		}
		for _, c := range vm.Status.Conditions {
			if c.Type == "RestartRequired" {
				return fields != "" && strings.Contains(c.Message, fields), c.Message
			}
		}
		return fields == "", "it is not there"
	})
}
