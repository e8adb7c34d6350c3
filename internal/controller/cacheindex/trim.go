package cacheindex

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/render"
)

// Trim keeps, of pods that are not ours, only what the controllers read: claims, node, requests, scheduling constraints, and
// whether the pod has ended. There may be thousands of them, and Berth never writes to them. Our own pods are kept whole. Managed
// fields are dropped from all.
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

// bare returns containers with only their names and resources, which suffice to compute the free resources of a node.
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
