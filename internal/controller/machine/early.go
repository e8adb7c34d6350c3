package machine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
)

// observeEarly: a disk that is being filled is ready for a guest if the worker that fills it serves it meanwhile, on the
// launcher's node: they meet at a socket on the claim. The launcher makes sure that there is one; annotations can be forged.
func (d *disk) observeEarly(launcher *corev1.Pod) {
	if d.is != machine.Filling && d.is != machine.Failing || d.claim == nil || d.copied != nil || d.block() || d.claim.Status.Phase != corev1.ClaimBound {
		return
	}
	on := d.claim.Annotations[names.ServedOn]
	elsewhere := launcher != nil && launcher.Spec.NodeName != "" && launcher.Spec.NodeName != on
	if on == "" || elsewhere || d.claim.Annotations[names.PodPhase] != string(corev1.PodRunning) {
		return
	}
	d.is, d.early = machine.Ready, true
}

// bootsEarly: the machine asks at one of its volumes to be started while this DataVolume is filled.
func bootsEarly(vm *kubevirt.VirtualMachine, volume string) bool {
	return slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirt.Volume) bool {
		return v.BootEarly && v.DataVolume != nil && v.DataVolume.Name == volume
	})
}

// mayBeEarly: one of its disks may have been taken before it was full.
func (s *run) mayBeEarly() bool {
	return slices.ContainsFunc(s.disks, func(d disk) bool { return d.early || d.claim != nil && d.claim.Annotations[names.BootEarly] == "true" })
}
