package render

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/task"
)

func (w Worker) volumes() []corev1.Volume {
	volumes := []corev1.Volume{{Name: "task", VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
			Path:     path.Base(task.TaskPath),
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", AnnTask)},
		}}},
	}}}
	if w.Target != nil {
		volumes = append(volumes, claimVolume(target, w.Target))
	}
	if w.Source != nil {
		volumes = append(volumes, claimVolume("source", w.Source))
	}
	for i, s := range w.Secrets {
		volumes = append(volumes, corev1.Volume{Name: fmt.Sprintf("secret-%d", i), VolumeSource: s.volume()})
	}
	return volumes
}

func claimVolume(name string, d *Disk) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: d.Claim},
	}}
}

// volume makes the Secret readable by the worker's group, which fsGroup sets, and by no other user.
func (s Secret) volume() corev1.VolumeSource {
	mode := ptr.To[int32](0o440)
	if s.ConfigMap {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.Name}, DefaultMode: mode,
		}}
	}
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s.Name, DefaultMode: mode}}
}
