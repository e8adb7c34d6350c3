package diskstate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// Network observes a volume at a server. It needs no claim and no data; the machine may only have to wait for another machine that
// has the disk.
func (r *Reader) Network(ctx context.Context, s *Run, v kubevirt.Volume, others []Disk) (Disk, error) {
	d := Disk{Name: v.Name, State: machine.Ready, Mode: Mode(v, s.Drive(v.Name)), Copied: v.Copied()}
	var err error
	d.Servers = ServersOf(s.Launcher, v)
	if d.ID, err = identity.Network(v.NetworkSource, d.Servers...); err != nil {
		d.State, d.Why = machine.Failed, err.Error()
		return d, nil
	}
	d.logsIn = v.AtServer() && StartedWith(s.Launcher, v) && s.LogInAwaited()
	return d, r.Access(ctx, s, &d, others)
}

// StartedWith reports whether the launcher has a network disk from the start. One that has its name and another address was added later.
func StartedWith(launcher *corev1.Pod, volume kubevirt.Volume) bool {
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
