package diskstate

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
)

// StartedWithClaim says whether the launcher has the volume from the start. Before there is a launcher, every volume is one.
func StartedWithClaim(launcher *corev1.Pod, v kubevirt.Volume) bool {
	claim, _ := render.ClaimOf(v)
	if launcher == nil || claim == "" {
		return true
	}
	return hasClaim(launcher, v.Name, ClaimIn(launcher, v))
}

// Drive is the disk of a volume; a volume without one gets the default.
func (s *Run) Drive(volume string) kubevirt.Disk {
	for _, d := range s.Object.Spec.Domain.Devices.Disks {
		if d.Name == volume {
			return d
		}
	}
	return kubevirt.Disk{Name: volume}
}

// Told reports whether the launcher's orders have the disk already, and its guest may have it.
func (s *Run) Told(volume string) bool {
	last := s.LastOrders()
	_, keeps := last.Keeps[volume]
	return keeps || slices.ContainsFunc(last.Added, func(x kubevirt.Disk) bool { return x.Name == volume })
}

// LastOrders returns the last orders that the launcher was given; the zero value if there were none.
func (s *Run) LastOrders() launcherapi.Disks {
	var d launcherapi.Disks
	_ = json.Unmarshal([]byte(s.Launcher.Annotations[render.AnnDisks]), &d) // what cannot be read is told again
	return d
}
