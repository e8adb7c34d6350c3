package render

import (
	"cmp"
	"maps"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Copy describes the storage of a volume's copy. It belongs to the pod, so it is deleted with the pod.
type Copy struct {
	Volume string
	// Room is how much the guest may write; 0: the size of its disk, which only the launcher knows, and launcherapi.CopyRoom at most.
	Room int64
	// Claimed: the machine said how much. A copy whose room follows from its size is mostly empty.
	Claimed bool
	// Assumed: the size of the disk is not known, and a copy gets Room.
	Assumed bool
	// Class is the storage class of the copy's own claim of Size bytes; empty: the copy is in a directory of the node.
	Class string
	Size  int64
	// Shared: several nodes can have the claim at once, so the copy is not sent when the guest moves.
	Shared bool
	// In is the claim that the launcher which the guest comes from has made for the copy; empty: the pod gets a claim of its own.
	In string
}

// VolumeName returns the name of the pod's volume for the copy.
func (c Copy) VolumeName() string { return fit("berth-copy-" + c.Volume) }

// slack is the space in a directory besides the file of a copy, before the kubelet ends the pod. The guest is paused before that.
const slack = 16 << 20

// source is the medium: a claim that Kubernetes makes and deletes with the pod, or a directory of the node.
func (c Copy) source() corev1.VolumeSource {
	if c.In != "" {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.In}}
	}
	if c.Class != "" {
		mode := corev1.ReadWriteOnce
		if c.Shared {
			mode = corev1.ReadWriteMany
		}
		return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Labels: Labels("")},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &c.Class, AccessModes: []corev1.PersistentVolumeAccessMode{mode},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: *resource.NewQuantity(c.Size, resource.BinarySI)}}},
		}}}
	}
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		SizeLimit: resource.NewQuantity(launcherapi.CopyFile(cmp.Or(c.Room, launcherapi.CopyRoom))+slack, resource.BinarySI)}}
}

// unsizedRequest is the space on the node that a copy of unknown size requests. Most take less, and it prevents machines without a
// request from filling a node.
const unsizedRequest = 256 << 20

// request returns the space that the node must have: all of it if that was asked for, else a tenth; nothing for a claim, which has
// its own space.
func (c Copy) request() int64 {
	switch {
	case c.Class != "":
		return 0
	case c.Claimed:
		return launcherapi.CopyFile(c.Room)
	case c.Room == 0:
		return unsizedRequest
	}
	return c.Room / 10
}

// rooms returns how much may be written to each copy of unknown size, by volume.
func (m Machine) rooms() map[string]int64 {
	out := map[string]int64{}
	for _, c := range m.Copies {
		switch {
		case c.Room == 0:
			out[c.Volume] = launcherapi.CopyRoom
		case c.Assumed:
			out[c.Volume] = c.Room
		}
	}
	return out
}

// copyVolumes are the media of the machine's copies. The consumer has them too: they have a say in where the machine can run.
func (m Machine) copyVolumes() []corev1.Volume {
	var out []corev1.Volume
	for _, c := range m.Copies {
		out = append(out, corev1.Volume{Name: c.VolumeName(), VolumeSource: c.source()})
	}
	return out
}

func (m Machine) copyMounts() []corev1.VolumeMount {
	var out []corev1.VolumeMount
	for _, c := range m.Copies {
		out = append(out, corev1.VolumeMount{Name: c.VolumeName(), MountPath: path.Join(launcherapi.CopiesDir, c.Volume)})
	}
	return out
}

// imageRequest is the space on the node that is requested for the layers of a container image. Their size is known when the
// machine starts; this is more than most have, and prevents machines without a request from filling a node.
const imageRequest = 1 << 30

// copyRequest is the room on the node that the copies ask for, and the layers that are made there.
func (m Machine) copyRequest() int64 {
	var sum int64
	for _, c := range m.Copies {
		sum += c.request()
	}
	for _, v := range m.Instance.Spec.Volumes {
		if v.ContainerImage != nil {
			sum += imageRequest
		}
	}
	return sum
}

// WithoutMasters returns the machine as it is without the masters of copies that have all of them, by volume with their sizes: the pod
// neither mounts nor opens them.
func (m Machine) WithoutMasters(sizes map[string]int64) Machine {
	if len(sizes) == 0 {
		return m
	}
	m.Whole, m.Instance, m.Direct = sizes, m.Instance.DeepCopy(), maps.Clone(m.Direct)
	for i, v := range m.Instance.Spec.Volumes {
		if _, whole := sizes[v.Name]; whole {
			m.Instance.Spec.Volumes[i] = kubevirt.Volume{Name: v.Name, Copy: v.Copied().DeepCopy()}
			delete(m.Direct, v.Name)
		}
	}
	return m
}

// CopyClaim returns the claim that a launcher has a copy in; empty if it is in a directory of the node.
func CopyClaim(launcher *corev1.Pod, volume string) string {
	name := Copy{Volume: volume}.VolumeName()
	for _, v := range launcher.Spec.Volumes {
		switch {
		case v.Name != name:
		case v.Ephemeral != nil:
			return launcher.Name + "-" + name // as Kubernetes calls it
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// opened are the volumes whose copies are in claims that the launcher which the guest comes from has too.
func (m Machine) opened() []string {
	var out []string
	for _, c := range m.Copies {
		if c.In != "" {
			out = append(out, c.Volume)
		}
	}
	return out
}

// media are the classes of the copies that have claims, by volume.
func (m Machine) media() map[string]string {
	out := map[string]string{}
	for _, c := range m.Copies {
		if c.Class != "" {
			out[c.Volume] = c.Class
		}
	}
	return out
}
