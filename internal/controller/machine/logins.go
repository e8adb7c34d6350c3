package machine

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launchers"
	"github.com/berth-vm/berth/internal/render"
)

// A network disk that a machine names by its address is somewhere only when a launcher has logged in there: names prove nothing. The launcher
// logs in before it is told to go and says where that was; the controller records the addresses on its pod, enters the launcher among the
// holders of the disks with them, and lets it go.

// serversOwner owns the annotation with the servers of a launcher.
const serversOwner client.FieldOwner = "berth-servers"

// serversAt is where a launcher has logged in, by volume, as it is recorded.
func serversAt(launcher *corev1.Pod) map[string][]string {
	var out map[string][]string
	if launcher != nil {
		_ = json.Unmarshal([]byte(launcher.Annotations[render.AnnServers]), &out) // nothing is recorded
	}
	return out
}

// logInAwaited: it is not recorded yet where the launcher has logged in. Before there is a launcher, it never is. Launchers of earlier
// versions, and those that a guest comes to, do not say.
func (s *run) logInAwaited() bool {
	if s.launcher == nil {
		return true
	}
	m, ok := launchers.ReadMachine(s.launcher)
	return ok && m.LogIn && s.launcher.Annotations[render.AnnServers] == "" && s.launcher.Annotations[render.AnnGo] != "yes"
}

// observeLogins asks a launcher whether it has logged in.
func (r *Reconciler) observeLogins(ctx context.Context, s *run) {
	if situation(s.launcher) != machine.Placed || !s.logInAwaited() || !cluster.OwnedBy(s.launcher, s.instance.UID) {
		return
	}
	said, err := r.ask(s.launcher)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of servers", "launcher", s.launcher.Name, "error", err.Error())
		return
	}
	s.logins = said.Servers
}

// noteServers records where the launcher has logged in.
func (r *Reconciler) noteServers(ctx context.Context, s *run) error {
	text, err := json.Marshal(s.logins)
	if err != nil {
		return fmt.Errorf("write the servers: %w", err)
	}
	return r.cluster.MarkAs(ctx, serversOwner, s.launcher, cluster.Marks{Annotations: map[string]string{render.AnnServers: string(text)}})
}
