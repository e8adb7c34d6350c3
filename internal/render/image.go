package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// imageMounts returns the mounts for the credentials and certificates that a container image is pulled with.
func imageMounts(volume string, s *kubevirt.ContainerImageSource) []mount {
	var out []mount
	if s.ImagePullSecret != "" {
		out = append(out, mount{fit(volume + "-secret"), netdisk.CredentialsDir, secretSource(s.ImagePullSecret, nil)})
	}
	if s.CertConfigMap != "" {
		out = append(out, mount{fit(volume + "-ca"), netdisk.CADir, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.CertConfigMap}, DefaultMode: ptr.To[int32](0o440)}}})
	}
	return out
}

// imageEnv makes the kubelet read the values that a program's environment takes from ConfigMaps and Secrets. The launcher gets
// them under names that it does not use itself, and passes them on. Literal values of the machine are not among them, because the
// kubelet would expand them.
func imageEnv(c *corev1.Container, s *kubevirt.ContainerImageSource) {
	for _, e := range s.EnvFrom {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{Prefix: launcherapi.EnvFromPrefix + e.Prefix, ConfigMapRef: e.ConfigMapRef, SecretRef: e.SecretRef})
	}
	for _, e := range s.Env {
		if e.ValueFrom != nil {
			c.Env = append(c.Env, corev1.EnvVar{Name: launcherapi.EnvPrefix + e.Name, ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: e.ValueFrom.ConfigMapKeyRef, SecretKeyRef: e.ValueFrom.SecretKeyRef}})
		}
	}
}
