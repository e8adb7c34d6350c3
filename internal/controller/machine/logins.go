package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// A network disk that a machine names by its address is somewhere only when a launcher has logged in there: names prove nothing. The launcher
// logs in before it is told to go and says where that was; the controller records the addresses on its pod, enters the launcher among the
// holders of the disks with them, and lets it go.

// mostServers is more than the monitors of a large Ceph cluster.
const mostServers = 64

// serversOwner owns the annotation with the servers of a launcher.
const serversOwner client.FieldOwner = "berth-servers"

// serversOf returns the recorded addresses where a launcher has logged in for a volume; nil if nothing is recorded. A volume of the same name that
// names another disk than the launcher was started with has none.
func serversOf(launcher *corev1.Pod, v kubevirt.Volume) []string {
	m, ok := launcherpod.ReadMachine(launcher)
	same := func(had kubevirt.Volume) bool {
		return had.Name == v.Name && equality.Semantic.DeepEqual(had.VolumeSource, v.VolumeSource)
	}
	var out map[string][]string
	if !ok || !slices.ContainsFunc(m.Spec.Volumes, same) || json.Unmarshal([]byte(launcher.Annotations[render.AnnServers]), &out) != nil {
		return nil
	}
	return out[v.Name]
}

// logInAwaited: it is not recorded yet where the launcher has logged in. Before there is a launcher, it never is. Launchers of earlier
// versions, and those that a guest comes to, do not say.
func (s *base) logInAwaited() bool {
	if s.launcher == nil {
		return true
	}
	m, ok := launcherpod.ReadMachine(s.launcher)
	return ok && m.LogIn && s.launcher.Annotations[render.AnnServers] == "" && s.launcher.Annotations[render.AnnGo] != "yes"
}

// observeLogins asks a launcher whether it has logged in.
func (r *Reconciler) observeLogins(ctx context.Context, s *base) {
	if situation(s.launcher) != machine.Placed || !s.logInAwaited() || !cluster.OwnedBy(s.launcher, s.instance.UID) {
		return
	}
	said, err := r.ask(s.launcher)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of servers", "launcher", s.launcher.Name, "error", err.Error())
		return
	}
	s.logins = addresses(s.launcher, said.Servers)
}

// addresses returns what a launcher says about the servers of its machine's volumes, without anything that is not an address: a pod's answer is
// untrusted input.
func addresses(launcher *corev1.Pod, said map[string][]string) map[string][]string {
	out := map[string][]string{}
	for _, v := range launcherpod.Machine(launcher).Spec.Volumes {
		at := said[v.Name]
		bad := func(s string) bool { _, err := netip.ParseAddrPort(s); return err != nil }
		if v.AtServer() && len(at) > 0 && len(at) <= mostServers && !slices.ContainsFunc(at, bad) {
			out[v.Name] = at
		}
	}
	return out
}

// noteServers records where the launcher has logged in.
func (r *Reconciler) noteServers(ctx context.Context, s *run) error {
	text, err := json.Marshal(s.logins)
	if err != nil {
		return fmt.Errorf("write the servers: %w", err)
	}
	return r.cluster.MarkAs(ctx, serversOwner, s.launcher, cluster.Marks{Annotations: map[string]string{render.AnnServers: string(text)}})
}
