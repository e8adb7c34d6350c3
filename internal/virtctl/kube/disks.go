package kube

import (
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// Disk is a volume of a machine and the claim it is in.
type Disk struct{ Name, Claim string }

// Disks returns the machine's volumes that are in claims: those of its instance, which may have more than the machine, or those
// an instance would have if there is none (nil).
func Disks(vm *kubevirt.VirtualMachine, instance *kubevirt.VirtualMachineInstance) []Disk {
	var volumes []kubevirt.Volume
	switch {
	case instance != nil:
		volumes = instance.Spec.Volumes
	case vm.Spec.Template != nil:
		volumes = vm.Spec.Template.Spec.AllVolumes()
	}
	var disks []Disk
	for _, v := range volumes {
		claim, _ := render.ClaimOf(v)
		if claim == "" {
			continue
		}
		if instance == nil && fromTemplate(vm, claim) {
			claim = kubevirt.ClaimName(vm.Name, claim)
		}
		disks = append(disks, Disk{Name: v.Name, Claim: claim})
	}
	return disks
}

func fromTemplate(vm *kubevirt.VirtualMachine, name string) bool {
	return slices.ContainsFunc(vm.Spec.VolumeClaimTemplates, func(t kubevirt.VolumeClaimTemplate) bool {
		return t.ObjectMeta.Name == name
	})
}
