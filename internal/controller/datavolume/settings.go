package datavolume

import (
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/render"
)

// pods is what the administrator decided about worker pods.
func (r *Reconciler) pods(s config.Settings) render.Settings {
	return render.Settings{
		Image: r.image, PullPolicy: s.ImagePullPolicy, PullSecrets: s.ImagePullSecrets, Resources: s.Resources,
		NodeSelector: s.Workers.NodeSelector, Affinity: s.Workers.Affinity, Tolerations: s.Workers.Tolerations,
	}
}

// network is what the administrator decided about how workers reach their sources.
func network(s config.Settings) render.Network {
	n := render.Network{InsecureRegistries: s.InsecureRegistries}
	if p := s.ImportProxy; p != nil {
		n.HTTPProxy, n.HTTPSProxy, n.NoProxy = deref(p.HTTPProxy), deref(p.HTTPSProxy), deref(p.NoProxy)
	}
	return n
}
