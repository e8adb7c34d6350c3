package observed

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// nameClaims gives every volume that names a claim template the name of its claim, and every other the spelling that
// instances have.
func nameClaims(vm *kubevirt.VirtualMachine, volumes []kubevirt.Volume) {
	full := func(name string) string {
		for i := range vm.Spec.VolumeClaimTemplates {
			if vm.Spec.VolumeClaimTemplates[i].ObjectMeta.Name == name {
				return kubevirt.ClaimName(vm.Name, name)
			}
		}
		return name
	}
	for i := range volumes {
		if c := volumes[i].PersistentVolumeClaim; c != nil {
			c.ClaimName, c.Name = full(c.Claim()), ""
		}
		if e := volumes[i].Ephemeral; e != nil && e.PersistentVolumeClaim != nil {
			e.PersistentVolumeClaim.ClaimName = full(e.PersistentVolumeClaim.ClaimName)
		}
	}
}
