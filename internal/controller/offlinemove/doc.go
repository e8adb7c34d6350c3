// Package offlinemove moves the disks of machines that do not run to another node, by copies of their claims. internal/decide/migration decides.
package offlinemove

import (
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reconciler moves the disks of machines that do not run.
type Reconciler struct {
	Read     *observed.Reader
	Machines *compose.Reader
	Cluster  *cluster.Writer
	Grants   *grant.Grants
	HandOver *handover.Recorder
	Status   *movestatus.Reporter
}
