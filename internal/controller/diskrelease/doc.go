// Package diskrelease frees disks: all disks of a pod whose end is certain, masters that a copy no longer needs, and disks that were
// removed from a running guest.
package diskrelease

import (
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reconciler frees the disks of launchers.
type Reconciler struct {
	Read     *observed.Reader
	Cluster  *cluster.Writer
	HandOver *handover.Recorder
}
