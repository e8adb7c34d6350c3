// Package evacuation guards guests against being evicted, and moves those whose node is drained. internal/decide/evacuation decides.
package evacuation

import (
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reconciler moves guests whose node is drained.
type Reconciler struct {
	Read    *observed.Reader
	Cluster *cluster.Writer
	Tries   *attempts.Maker
}
