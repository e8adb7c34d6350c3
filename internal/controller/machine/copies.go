package machine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// observeCopies finds where the copies of the machine's volumes are to be, and how much room each has.
func (s *run) observeCopies() {
	for _, v := range s.instance.Spec.Volumes {
		if c := v.Copied(); c != nil {
			s.pods.Copies = append(s.pods.Copies, s.medium(v.Name, c))
		}
	}
}

func (s *run) medium(volume string, c *kubevirt.DiskCopy) render.Copy {
	m := render.Copy{Volume: volume}
	at := slices.IndexFunc(s.disks, func(d disk) bool { return d.name == volume })
	switch {
	case c.Capacity != nil:
		m.Room, m.Claimed = c.Capacity.Value(), true
	case c.Size != nil:
		m.Room = c.Size.Value()
	case at >= 0:
		m.Room = s.disks[at].room()
	}
	return m
}

// room is what the disk in a claim has at most; 0 if that is not known.
func (d disk) room() int64 {
	if d.claim == nil {
		return 0
	}
	if has, ok := d.claim.Status.Capacity[corev1.ResourceStorage]; ok {
		return has.Value()
	}
	asked := d.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return asked.Value()
}
