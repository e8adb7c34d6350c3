// Package instance runs VirtualMachineInstances: one consumer for all held claims, then the launcher that runs the guest, and the status.
// internal/decide/machine decides.
package instance

import (
	"k8s.io/utils/clock"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskrelease"
	"github.com/berth-vm/berth/internal/controller/evacuation"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/hotplug"
	"github.com/berth-vm/berth/internal/controller/keep"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
)

// Reconciler runs instances.
type Reconciler struct {
	Read       *observed.Reader
	Cluster    *cluster.Writer
	Clock      clock.PassiveClock
	Report     *report.Reporter
	Grants     *grant.Grants
	Releases   *diskrelease.Reconciler
	Evacuation *evacuation.Reconciler
	Updates    *volumeupdate.Reconciler
	Hotplug    *hotplug.Reconciler
	Keeps      *keep.Reconciler
}
