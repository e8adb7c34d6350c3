// Package volumeupdate has the disks of a running guest sent to the claims that its machine's volumes were changed to.
// internal/decide/update decides.
package volumeupdate

import (
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reconciler makes the migrations that send disks to changed claims.
type Reconciler struct {
	Read    *observed.Reader
	Cluster *cluster.Writer
	Tries   *attempts.Maker
}
