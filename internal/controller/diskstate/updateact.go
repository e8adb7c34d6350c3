package diskstate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// UpdatedClaims are the claims that a target has for volumes that their owner changed, by volume.
func UpdatedClaims(target *corev1.Pod) map[string]string {
	m, out := launcherpod.Machine(target), map[string]string{}
	for _, v := range m.Spec.Volumes {
		if m.Updated[v.Name] != "" {
			out[v.Name], _ = render.ClaimOf(v)
		}
	}
	return out
}

// Partial is why a machine cannot be started with a claim that a disk was being sent into; empty if it can.
func Partial(c *corev1.PersistentVolumeClaim) string {
	if c == nil || c.Annotations[render.AnnReceives] == "" {
		return ""
	}
	return fmt.Sprintf("PersistentVolumeClaim %s has only a part of %s, since the machine stopped before all of it was sent: "+
		"change the volume back to the claim that it was in, and restart the machine", c.Name, c.Annotations[render.AnnReceives])
}
