package machine

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launchers"
)

// networkDisk is a volume at a server. Nothing has to be made or filled for it; all it may have to wait for is another
// machine that has the disk.
func (r *Reconciler) networkDisk(ctx context.Context, s *run, v kubevirt.Volume) (disk, error) {
	d := disk{name: v.Name, is: machine.Ready, mode: mode(v, s.drive(v.Name)), copied: v.Copied()}
	var err error
	d.servers = serversOf(s.launcher, v)
	if d.id, err = networkIdentity(v, d.servers); err != nil {
		d.is, d.why = machine.Failed, err.Error()
		return d, nil
	}
	d.logsIn = v.AtServer() && startedWith(s.launcher, v) && s.logInAwaited()
	return d, r.observeAccess(ctx, s, &d, s.allDisks())
}

// startedWith reports whether the launcher has a network disk from the start. One that has its name and another address was added later.
func startedWith(launcher *corev1.Pod, volume kubevirt.Volume) bool {
	m, ok := launchers.ReadMachine(launcher)
	if !ok {
		return true
	}
	is, err := networkIdentity(volume, nil)
	return slices.ContainsFunc(m.Spec.Volumes, func(v kubevirt.Volume) bool {
		if v.Name != volume.Name || !v.Networked() {
			return false
		}
		was, wasErr := networkIdentity(v, nil)
		return was == is || err != nil || wasErr != nil
	})
}

// networkIdentity is which disk is meant. servers is where the launcher has logged in; empty: that is not known.
func networkIdentity(v kubevirt.Volume, servers []string) (identity.Disk, error) {
	switch s := v.VolumeSource; {
	case s.ISCSI != nil:
		return identity.ISCSI(s.ISCSI.Portal, int(s.ISCSI.LUN)), nil
	case s.RBD != nil:
		return identity.RBD(s.RBD.Pool, s.RBD.Namespace, s.RBD.Image), nil
	case s.NBD != nil && len(servers) == 1: // a server has many names, and one of them is the disk's for another machine
		if at, err := netip.ParseAddrPort(servers[0]); err == nil {
			return identity.NBD(at.Addr().String(), int(at.Port()), s.NBD.Export), nil
		}
		fallthrough
	case s.NBD != nil:
		return identity.NBD(s.NBD.Host.Name, s.NBD.Host.PortOr(0), s.NBD.Export), nil
	case s.Gluster != nil:
		return identity.Gluster(s.Gluster.Volume, s.Gluster.Path), nil
	}
	return identity.HTTP(v.HTTP.URL)
}
