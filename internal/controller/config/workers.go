package config

import (
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/render"
)

// Pod returns what the administrator decided about worker pods, which run image.
func (s Settings) Pod(image string) render.Settings {
	return render.Settings{
		Image: image, PullPolicy: s.ImagePullPolicy, PullSecrets: s.ImagePullSecrets, Resources: s.Resources,
		NodeSelector: s.Workers.NodeSelector, Affinity: s.Workers.Affinity, Tolerations: s.Workers.Tolerations,
	}
}

// Network returns what the administrator decided about how workers reach their sources.
func (s Settings) Network() render.Network {
	n := render.Network{InsecureRegistries: s.InsecureRegistries, Mirrors: s.Mirrors}
	if p := s.ImportProxy; p != nil {
		n.HTTPProxy, n.HTTPSProxy, n.NoProxy = ptr.Deref(p.HTTPProxy, ""), ptr.Deref(p.HTTPSProxy, ""), ptr.Deref(p.NoProxy, "")
	}
	return n
}
