package instance

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// complain makes an event of every volume that the guest does not give back and that was not complained of before.
func (r *Reconciler) complain(i *kubevirt.VirtualMachineInstance, now []kubevirt.VolumeStatus) {
	for _, v := range now {
		known := slices.ContainsFunc(i.Status.VolumeStatus, func(x kubevirt.VolumeStatus) bool { return x.Name == v.Name && x.Reason == v.Reason })
		if v.Reason == machine.GuestKeepsIt && !known {
			r.Cluster.Event(i, corev1.EventTypeWarning, machine.GuestKeepsIt, fmt.Sprintf("volume %s: %s", v.Name, v.Message))
		}
	}
}
