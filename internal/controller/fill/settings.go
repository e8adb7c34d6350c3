package fill

import (
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/render"
)

// PodSettings is what the administrator decided about worker pods, which run image.
func PodSettings(image string, s config.Settings) render.Settings {
	return render.Settings{
		Image: image, PullPolicy: s.ImagePullPolicy, PullSecrets: s.ImagePullSecrets, Resources: s.Resources,
		NodeSelector: s.Workers.NodeSelector, Affinity: s.Workers.Affinity, Tolerations: s.Workers.Tolerations,
	}
}

// Network is what the administrator decided about how workers reach their sources.
func Network(s config.Settings) render.Network {
	n := render.Network{InsecureRegistries: s.InsecureRegistries}
	if p := s.ImportProxy; p != nil {
		n.HTTPProxy, n.HTTPSProxy, n.NoProxy = deref(p.HTTPProxy), deref(p.HTTPSProxy), deref(p.NoProxy)
	}
	return n
}
