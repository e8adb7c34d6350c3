// Package keep records on claims the progress of the copies of disks that are kept in them. internal/decide/machine decides.
package keep

import "github.com/berth-vm/berth/internal/cluster"

// Reconciler records on claims that copies are kept in them.
type Reconciler struct {
	Cluster *cluster.Writer
}
