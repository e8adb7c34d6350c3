package observed

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// The servers of a network disk that a machine names by its address are known only when a launcher has logged in, because a name
// may resolve to any server. The launcher logs in before it is told to start and reports the addresses; the controller records
// them on its pod, enters the launcher with them among the holders of the disks, and tells it to start.

// MostServers is more than the monitors of a large Ceph cluster.
const MostServers = 64

// observeLogins asks a launcher whether it has logged in.
func (r *Reader) observeLogins(ctx context.Context, s *diskstate.Run) {
	if Situation(s.Launcher) != machine.Placed || !s.LogInAwaited() || !cluster.OwnedBy(s.Launcher, s.Object.UID) {
		return
	}
	said, err := r.Ask(s.Launcher)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of servers", "launcher", s.Launcher.Name, "error", err.Error())
		return
	}
	s.Logins = Addresses(s.Launcher, said.Servers)
}

// Addresses returns the servers of the machine's volumes from a launcher's answer, only as far as they are valid addresses: a
// pod's answer is untrusted input.
func Addresses(launcher *corev1.Pod, said map[string][]string) map[string][]string {
	out := map[string][]string{}
	for _, v := range launcherpod.Machine(launcher).Spec.Volumes {
		at := said[v.Name]
		bad := func(s string) bool { _, err := netip.ParseAddrPort(s); return err != nil }
		if v.AtServer() && len(at) > 0 && len(at) <= MostServers && !slices.ContainsFunc(at, bad) {
			out[v.Name] = at
		}
	}
	return out
}
