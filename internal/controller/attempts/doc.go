// Package attempts makes the migrations that Berth itself wants, for a node that is drained or volumes that were changed: each with a number in
// its name, with a pause after a failure that grows, and only a few of those that ended are kept.
package attempts

import (
	"k8s.io/utils/clock"

	"github.com/berth-vm/berth/internal/cluster"
)

// Maker makes migrations.
type Maker struct {
	Cluster *cluster.Writer
	Clock   clock.PassiveClock
}
