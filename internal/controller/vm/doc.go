// Package vm reconciles VirtualMachines: it makes disks from their templates, starts and ends instances as the run strategy says, and carries out
// what people ask. internal/decide/machine decides.
//
// What people ask of a machine (start, stop, restart, add and remove a volume) is in its status or in its instance, in the form that
// api/kubevirt/v1/request.go describes; each request is removed when it has been carried out.
package vm

import (
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
)

// Reconciler reconciles machines.
type Reconciler struct {
	Read     *observed.Reader
	Machines *compose.Reader
	Cluster  *cluster.Writer
	Report   *report.Reporter
	Updates  *volumeupdate.Reconciler
}
