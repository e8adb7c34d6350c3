package index

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/render"
)

// Trim keeps of a pod of others what the controllers look at: its claims, its node, what it asks for and where it may run, and
// whether it has ended. There may be thousands of them, and nobody here ever writes to one. Pods of ours are kept whole. Who
// applied which field is kept of neither.
func Trim(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		if o, ok := obj.(client.Object); ok {
			o.SetManagedFields(nil)
		}
		return obj, nil
	}
	p.ManagedFields = nil
	if p.Labels[render.LabelApp] == render.App || p.Labels[render.LabelMachine] != "" {
		return p, nil
	}
	p.Annotations = nil
	p.Spec.InitContainers, p.Spec.Containers = bare(p.Spec.InitContainers), bare(p.Spec.Containers)
	p.Spec.EphemeralContainers = nil
	p.Spec.Volumes = ofClaims(p.Spec.Volumes)
	p.Status = corev1.PodStatus{Phase: p.Status.Phase}
	return p, nil
}

// bare are containers as far as room on a node goes.
func bare(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range containers {
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return out
}

func ofClaims(volumes []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v)
		}
	}
	return out
}
