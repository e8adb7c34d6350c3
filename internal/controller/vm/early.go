package vm

import (
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// bootsEarly: the machine asks at one of its volumes to be started while this DataVolume is filled.
func bootsEarly(vm *kubevirt.VirtualMachine, volume string) bool {
	return slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirt.Volume) bool {
		return v.BootEarly && v.DataVolume != nil && v.DataVolume.Name == volume
	})
}
