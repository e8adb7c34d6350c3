package report

import (
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// AddedStatus returns the status of an added volume.
func AddedStatus(s *observed.Instance, h *observed.Added) kubevirt.VolumeStatus {
	v := DiskStatus(h.Disk)
	v.Phase, v.Reason = h.Plan.Phase, h.Plan.Reason
	pod := h.Holder
	if pod == nil {
		pod = h.Consumer
	}
	// It always has a name: a server-side apply that empties an object writes null, which the API server refuses.
	v.HotplugVolume = &kubevirt.HotplugVolumeStatus{AttachPodName: render.Hot{Launcher: s.Launcher, Volume: kubevirt.Volume{Name: h.Name}}.PodName(render.Launcher)}
	if pod != nil {
		v.HotplugVolume.AttachPodName, v.HotplugVolume.AttachPodUID = pod.Name, pod.UID
	}
	switch {
	case h.Reason != "" && h.Holder == nil:
		v.Reason, v.Message = string(h.Reason), h.Why
	case h.Plan.Reason == machine.DiskInUse:
		v.Message = h.Why
	case h.Plan.Reason == machine.GuestKeepsIt:
		v.Message = s.Returns.Kept[h.Name]
	case h.Plan.Reason == machine.BackupHoldsDisks:
		v.Message = state.BackupHoldsDisks
	case pod != nil && observed.Unschedulable(pod) != "":
		v.Message = observed.Unschedulable(pod)
	case h.Holder != nil && lastFailure(h.Holder) != "":
		v.Message = lastFailure(h.Holder)
	}
	return v
}

// lastFailure returns why a holder's last attempt failed.
func lastFailure(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil && !c.Ready {
			return t.Message
		}
	}
	return ""
}
