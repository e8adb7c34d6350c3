// Package report makes the status of an instance from the observed facts: its row of the table of states with the details, its
// conditions, and the status of its volumes. The machine reports the same as its instance, so both controllers use it.
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
