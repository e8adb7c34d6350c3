package diskstate

import (
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// Capacity returns the largest possible size of the disk in a claim; 0 if that is not known.
func (d Disk) Capacity() int64 {
	if d.Claim == nil {
		return 0
	}
	if has, ok := d.Claim.Status.Capacity[corev1.ResourceStorage]; ok {
		return has.Value()
	}
	asked := d.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return asked.Value()
}

// Released reports whether the launcher was told to go; it was among the holders of all its disks then.
func (s *Run) Released() bool {
	return s.Launcher != nil && s.Launcher.Annotations[render.AnnGo] == "yes"
}

// gaveBack: the launcher needed the disk as a master and has closed it. The launcher was among the holders before it was told to
// start, and is removed only when it reports that its copy is complete (giveMasters).
func (s *Run) gaveBack(d *Disk) bool {
	return d.Copied != nil && d.Copied.Mode != kubevirt.CopyOnWrite && s.Released() && !d.Holds
}
