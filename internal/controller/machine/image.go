package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
)

// observeRegistries finds the volumes whose images the launcher may read without TLS: they are in registries that imports may read without TLS too.
func (r *Reconciler) observeRegistries(ctx context.Context, s *run) error {
	for _, v := range s.instance.Spec.Volumes {
		if v.ContainerImage == nil {
			continue
		}
		settings, err := config.NewReader(r.reader).Settings(ctx)
		if err != nil {
			return err
		}
		if settings.Network().Plain(launch.ImageScheme + v.ContainerImage.Image) {
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
		said[render.AnnAgent] = launch.NoAgent
	}
	return said
}

// aloneText says why a machine has layers of its own.
func aloneText(why string) string { return "its layers were made for this machine alone: " + why }
