// Package report makes what is said about an instance from what was observed: its row of the table of states with the details, its
// conditions, and the status of its volumes. The machine says the same as its instance, so both controllers use it.
//
// It decides nothing: internal/decide/machine.Show does.
package report

import (
	"k8s.io/utils/clock"

	"github.com/berth-vm/berth/internal/cluster"
)

// Reporter writes status and events.
type Reporter struct {
	Cluster *cluster.Writer
	Clock   clock.PassiveClock
}
