package machine

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// networkDisk is a volume at a server. Nothing has to be made or filled for it; all it may have to wait for is another
// machine that has the disk.
func (r *Reconciler) networkDisk(ctx context.Context, s *base, v kubevirt.Volume, others []disk) (disk, error) {
	d := disk{name: v.Name, is: machine.Ready, mode: mode(v, s.drive(v.Name)), copied: v.Copied()}
	var err error
	d.servers = serversOf(s.launcher, v)
	if d.id, err = identity.Network(v.NetworkSource, d.servers...); err != nil {
		d.is, d.why = machine.Failed, err.Error()
		return d, nil
	}
	d.logsIn = v.AtServer() && startedWith(s.launcher, v) && s.logInAwaited()
	return d, r.observeAccess(ctx, s, &d, others)
}

// startedWith reports whether the launcher has a network disk from the start. One that has its name and another address was added later.
func startedWith(launcher *corev1.Pod, volume kubevirt.Volume) bool {
	m, ok := launcherpod.ReadMachine(launcher)
	if !ok {
		return true
	}
	is, err := identity.Network(volume.NetworkSource)
	return slices.ContainsFunc(m.Spec.Volumes, func(v kubevirt.Volume) bool {
		if v.Name != volume.Name || !v.Networked() {
			return false
		}
		was, wasErr := identity.Network(v.NetworkSource)
		return was == is || err != nil || wasErr != nil
	})
}
