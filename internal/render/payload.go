package render

import (
	"cmp"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// payload adds the parts that only the launcher needs: its orders, space for its files, and the volumes that are not claims. None
// of them changes the nodes on which the pod can run.
func (m Machine) payload(pod *corev1.Pod) {
	// QEMU listens for the guest, whose services mostly have low ports, and it is not root.
	pod.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	spec := m.Instance.Spec
	c := &pod.Spec.Containers[0]
	c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = started(), ready(spec.ReadinessProbe), probe("liveness", spec.LivenessProbe)
	add := func(name, dir string, source corev1.VolumeSource, readOnly bool) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir, ReadOnly: readOnly})
	}
	add("berth-orders", launcherapi.TaskDir, orders(), true)
	add("berth-state", launcherapi.StateDir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
	add("berth-own", launcherapi.OwnDir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
	add(launcherapi.MeetVolume, launcherapi.MeetDir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
	add(SetsVolume, launcherapi.SetsDir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
	// The Secret is there while the guest moves; a pod cannot be given one later.
	add(MoveVolume, launcherapi.MoveKeysDir, secretSource(MoveSecret(m.Instance), ptr.To(true)), true)
	for _, v := range spec.Volumes {
		m.extra(pod, v, add)
	}
	for n, c := range spec.AccessCredentials {
		dir := path.Join(launcherapi.MountDir, launcherapi.AccessMount(n))
		switch {
		case c.ByCloudInit(true) || c.ByCloudInit(false):
			add(launcherapi.AccessMount(n), dir, secretSource(c.Secret(), nil), true)
		case c.ByAgent(): // the guest starts without it, and gets it when it is there
			add(launcherapi.AccessMount(n), dir, secretSource(c.Secret(), ptr.To(true)), true)
		}
	}
	if f := spec.Domain.Firmware; f != nil && f.KernelBoot != nil && f.KernelBoot.Container != nil {
		k := f.KernelBoot.Container
		add("berth-kernel", launcherapi.KernelDir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
		files := []string{}
		for _, file := range []string{k.KernelPath, k.InitrdPath} {
			if file != "" {
				files = append(files, path.Clean("/"+file))
			}
		}
		m.copyFrom(pod, "kernel", k.Image, k.ImagePullPolicy, k.ImagePullSecret, "berth-kernel", files)
	}
}

// orders are the pod's own annotations as files, so that the controller speaks to a launcher by changing its pod.
func orders() corev1.VolumeSource {
	file := func(name, annotation string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: fmt.Sprintf("metadata.annotations['%s']", annotation)}}
	}
	return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{
			file(launcherapi.TaskFile, AnnMachine), file(launcherapi.GoFile, AnnGo), file(launcherapi.DisksFile, AnnDisks),
			file(launcherapi.MoveFile, AnnMove), file(launcherapi.AgentFile, AnnAgent)}}}
}

func (m Machine) extra(pod *corev1.Pod, v kubevirt.Volume, add func(string, string, corev1.VolumeSource, bool)) {
	dir := path.Join(launcherapi.MountDir, v.Name)
	if d, ok := m.Direct[v.Name]; ok {
		v = d.Volume(v)
	}
	switch {
	case v.ContainerDisk != nil:
		d := v.ContainerDisk
		add(v.Name, dir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
		from := "/disk"
		if d.Path != "" {
			from = path.Clean("/" + d.Path)
		}
		m.copyFrom(pod, v.Name, cmp.Or(m.Mirrored[v.Name], d.Image), d.ImagePullPolicy, d.ImagePullSecret, v.Name, []string{from})
	case v.ContainerImage != nil:
		// The launcher keeps to its own bound, which is lower: the kubelet ends a pod that goes beyond this one.
		add(v.Name, dir, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: resource.NewQuantity(launcherapi.ImageFiles()+slack, resource.BinarySI)}}, false)
		for _, s := range imageMounts(v.Name, v.ContainerImage) {
			add(s.name, path.Join(dir, s.dir), s.source, true)
		}
		imageEnv(&pod.Spec.Containers[0], v.ContainerImage)
	case v.ConfigMap != nil:
		add(v.Name, dir, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Optional: v.ConfigMap.Optional}}, true)
	case v.DownwardAPI != nil:
		add(v.Name, dir, corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: v.DownwardAPI.Fields}}, true)
	case v.Sysprep != nil && v.Sysprep.Secret != nil:
		add(v.Name, dir, secretSource(v.Sysprep.Secret.Name, nil), true)
	case v.Sysprep != nil && v.Sysprep.ConfigMap != nil:
		add(v.Name, dir, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: *v.Sysprep.ConfigMap}}, true)
	case v.Secret != nil:
		add(v.Name, dir, secretSource(v.Secret.SecretName, v.Secret.Optional), true)
	case v.HostDisk != nil:
		add(v.Name, dir, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: path.Dir(v.HostDisk.Path), Type: ptr.To(corev1.HostPathDirectory)}}, false)
	case v.CloudInitNoCloud != nil:
		cloudInitSecrets(v.Name, dir, v.CloudInitNoCloud, add)
	case v.CloudInitConfigDrive != nil:
		cloudInitSecrets(v.Name, dir, v.CloudInitConfigDrive, add)
	case v.Networked():
		for _, s := range networkMounts(v) {
			add(s.name, path.Join(dir, s.dir), s.source, true)
		}
	}
}

func cloudInitSecrets(name, dir string, s *kubevirt.CloudInitSource, add func(string, string, corev1.VolumeSource, bool)) {
	if s.UserDataSecretRef != nil {
		add(name+"-userdata", path.Join(dir, launcherapi.UserDataMount), secretSource(s.UserDataSecretRef.Name, nil), true)
	}
	if s.NetworkDataSecretRef != nil {
		add(name+"-networkdata", path.Join(dir, launcherapi.NetworkDataMount), secretSource(s.NetworkDataSecretRef.Name, nil), true)
	}
}

func secretSource(name string, optional *bool) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: optional, DefaultMode: ptr.To[int32](0o440)}}
}

// toolVolume holds the launcher's own program for containers whose image has none.
const toolVolume = "berth-tool"

// copyFrom copies files out of an image that may have no programs: one init container brings the program, the next has the image
// itself and runs it.
func (m Machine) copyFrom(pod *corev1.Pod, name, image string, pull corev1.PullPolicy, secret, volume string, files []string) {
	const tool = "/berth-tool"
	const to = "/berth-to"
	small := m.container() // for its security context
	step := func(name, image string, command []string, mounts ...corev1.VolumeMount) corev1.Container {
		return corev1.Container{Name: name, Image: image, Command: command, VolumeMounts: mounts, SecurityContext: small.SecurityContext}
	}
	toolMount := corev1.VolumeMount{Name: toolVolume, MountPath: tool}
	if len(pod.Spec.InitContainers) == 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: toolVolume,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		bring := step("berth-tool", m.Image, []string{"/usr/bin/launcher", "copy", "/usr/bin/launcher", tool}, toolMount)
		bring.ImagePullPolicy = corev1.PullIfNotPresent
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, bring)
	}
	take := step(fit("copy-"+name), image, append(append([]string{tool + "/launcher", "copy"}, files...), to),
		toolMount, corev1.VolumeMount{Name: volume, MountPath: to})
	take.ImagePullPolicy = pull
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, take)
	if secret != "" {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
}
