// Package hotplug brings disks to a running guest and takes them away: it makes the pods that hold added disks and tells the launcher.
// internal/decide/machine decides.
package hotplug

import (
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reconciler brings disks to running guests.
type Reconciler struct {
	Read    *observed.Reader
	Cluster *cluster.Writer
	Grants  *grant.Grants
}
