package diskstate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
)

// ObserveEarly finds out whether a guest can have the disk while it is filled: it can if the worker that fills it serves it meanwhile, on the
// launcher's node: they meet at a socket on the claim. The launcher makes sure that there is one; annotations can be forged.
func (d *Disk) ObserveEarly(launcher *corev1.Pod) {
	if d.State != machine.Filling && d.State != machine.Failing || d.Claim == nil || d.Copied != nil || d.Block() || d.Claim.Status.Phase != corev1.ClaimBound {
		return
	}
	on := d.Claim.Annotations[names.ServedOn]
	elsewhere := launcher != nil && launcher.Spec.NodeName != "" && launcher.Spec.NodeName != on
	if on == "" || elsewhere || d.Claim.Annotations[names.PodPhase] != string(corev1.PodRunning) {
		return
	}
	d.State, d.Early = machine.Ready, true
}
