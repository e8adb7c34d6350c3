package machine

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
	"github.com/berth-vm/berth/internal/render"
)

// observeRegistries finds out where the images of volumes are read from, as those of imports are: from a mirror, and without TLS where the
// administrator allows it.
func (r *Reconciler) observeRegistries(ctx context.Context, s *run) error {
	for _, v := range s.instance.Spec.Volumes {
		image, secret := "", ""
		switch {
		case v.ContainerImage != nil:
			image, secret = v.ContainerImage.Image, v.ContainerImage.ImagePullSecret
		case v.ContainerDisk != nil && r.data:
			image, secret = v.ContainerDisk.Image, v.ContainerDisk.ImagePullSecret
		default:
			continue
		}
		settings, err := config.NewReader(r.reader).Settings(ctx)
		if err != nil {
			return err
		}
		network := settings.Network()
		if from := network.Mirrored(image, secret); from != image {
			if s.pods.Mirrored == nil {
				s.pods.Mirrored = map[string]string{}
			}
			s.pods.Mirrored[v.Name], image = from, from
		}
		if v.ContainerImage != nil && network.Plain(launcherapi.ImageScheme+image) {
			s.pods.Plain = append(s.pods.Plain, v.Name)
		}
	}
	return nil
}

// The agents of nodes, as config/node has them.
const (
	agentNamespace = "berth-node"
	agentLabel     = "app.kubernetes.io/component"
	agentIs        = "node"
)

// observeAgent looks whether the node of a launcher that is to make layers has an agent, who introduces it to the node's cache. An agent that only
// starts counts: the launcher waits for it for a while.
func (r *Reconciler) observeAgent(ctx context.Context, s *run) error {
	if s.launcher == nil || s.launcher.Spec.NodeName == "" || s.released() || !slices.ContainsFunc(s.instance.Spec.Volumes, ofImage) {
		return nil
	}
	var agents corev1.PodList
	if err := r.reader.List(ctx, &agents, client.InNamespace(agentNamespace), client.MatchingLabels{agentLabel: agentIs}); err != nil {
		return fmt.Errorf("list the agents of nodes: %w", err)
	}
	s.agentless = !slices.ContainsFunc(agents.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName == s.launcher.Spec.NodeName && p.DeletionTimestamp == nil && !pods.Over(&p)
	})
	return nil
}

func ofImage(v kubevirt.Volume) bool { return v.ContainerImage != nil }

// word is what a launcher is told that is to go.
func (s *run) word() map[string]string {
	said := map[string]string{render.AnnGo: "yes"}
	if s.agentless {
		said[render.AnnAgent] = launcherapi.NoAgent
	}
	return said
}

// aloneText says why a machine has layers of its own.
func aloneText(why string) string { return "its layers were made for this machine alone: " + why }
