package render

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/internal/launch"
)

// Copy is where the copy of a volume is kept. It belongs to the pod, so it is gone with it, and nobody has to delete it.
type Copy struct {
	Volume string
	// Room is how much the guest may write; 0: as much as its disk has, which only the launcher knows.
	Room int64
	// Claimed: the machine said how much. A copy whose room follows from its size is mostly empty.
	Claimed bool
}

// volumeName is that of the pod's volume for the copy.
func (c Copy) volumeName() string { return fit("berth-copy-" + c.Volume) }

// slack is what a directory may hold besides the file of a copy before the kubelet ends the pod. The guest is paused before.
const slack = 16 << 20

// source is the medium: a directory of the node.
func (c Copy) source() corev1.VolumeSource {
	dir := &corev1.EmptyDirVolumeSource{}
	if c.Room > 0 {
		dir.SizeLimit = resource.NewQuantity(launch.CopyFile(c.Room)+slack, resource.BinarySI)
	}
	return corev1.VolumeSource{EmptyDir: dir}
}

// request is what the node must have: all of it if that was asked for, else a tenth.
func (c Copy) request() int64 {
	if c.Claimed {
		return launch.CopyFile(c.Room)
	}
	return c.Room / 10
}

// copyVolumes are the media of the machine's copies. The consumer has them too: they have a say in where the machine can run.
func (m Machine) copyVolumes() []corev1.Volume {
	var out []corev1.Volume
	for _, c := range m.Copies {
		out = append(out, corev1.Volume{Name: c.volumeName(), VolumeSource: c.source()})
	}
	return out
}

func (m Machine) copyMounts() []corev1.VolumeMount {
	var out []corev1.VolumeMount
	for _, c := range m.Copies {
		out = append(out, corev1.VolumeMount{Name: c.volumeName(), MountPath: path.Join(launch.CopiesDir, c.Volume)})
	}
	return out
}

// copyRequest is the room on the node that the copies ask for.
func (m Machine) copyRequest() int64 {
	var sum int64
	for _, c := range m.Copies {
		sum += c.request()
	}
	return sum
}
