package observed

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/pods"
)

// Registries finds out where the images of volumes are read from, as those of imports are: from a mirror, and without TLS where the
// administrator allows it.
func (r *Reader) Registries(ctx context.Context, s *Instance) error {
	for _, v := range s.Object.Spec.Volumes {
		image, secret := "", ""
		switch {
		case v.ContainerImage != nil:
			image, secret = v.ContainerImage.Image, v.ContainerImage.ImagePullSecret
		case v.ContainerDisk != nil && r.Data:
			image, secret = v.ContainerDisk.Image, v.ContainerDisk.ImagePullSecret
		default:
			continue
		}
		settings, err := config.NewReader(r.Cached).Settings(ctx)
		if err != nil {
			return err
		}
		network := settings.Network()
		if from := network.Mirrored(image, secret); from != image {
			if s.Pods.Mirrored == nil {
				s.Pods.Mirrored = map[string]string{}
			}
			s.Pods.Mirrored[v.Name], image = from, from
		}
		if v.ContainerImage != nil && network.Plain(launcherapi.ImageScheme+image) {
			s.Pods.Plain = append(s.Pods.Plain, v.Name)
		}
	}
	return nil
}

// The agents of nodes, as config/node has them.
const (
	AgentNamespace = "berth-node"
	AgentLabel     = "app.kubernetes.io/component"
	AgentIs        = "node"
)

// NodeAgent looks whether the node of a launcher that is to make layers has an agent, who introduces it to the node's cache. An agent that only
// starts counts: the launcher waits for it for a while.
func (r *Reader) NodeAgent(ctx context.Context, s *Instance) error {
	if s.Launcher == nil || s.Launcher.Spec.NodeName == "" || s.Released() || !slices.ContainsFunc(s.Object.Spec.Volumes, ofImage) {
		return nil
	}
	var agents corev1.PodList
	if err := r.Cached.List(ctx, &agents, client.InNamespace(AgentNamespace), client.MatchingLabels{AgentLabel: AgentIs}); err != nil {
		return fmt.Errorf("list the agents of nodes: %w", err)
	}
	s.Agentless = !slices.ContainsFunc(agents.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName == s.Launcher.Spec.NodeName && p.DeletionTimestamp == nil && !pods.Over(&p)
	})
	return nil
}

func ofImage(v kubevirt.Volume) bool { return v.ContainerImage != nil }
