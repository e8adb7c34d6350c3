// Package machine puts the controllers of the machine side together: each has a package of its own, and they speak through objects. Here are
// their queues, and the tests that run all of them against a simulated cluster.
package machine

import (
	"k8s.io/utils/clock"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/diskrelease"
	"github.com/berth-vm/berth/internal/controller/evacuation"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/hotplug"
	"github.com/berth-vm/berth/internal/controller/instance"
	"github.com/berth-vm/berth/internal/controller/keep"
	"github.com/berth-vm/berth/internal/controller/migration"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/offlinemove"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/vm"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
)

// Options are the administrator's settings for all machines.
type Options = observed.Options

// Controllers are the controllers of the machine side.
type Controllers struct {
	Read       *observed.Reader
	VM         *vm.Reconciler
	Instance   *instance.Reconciler
	Migration  *migration.Reconciler
	Offline    *offlinemove.Reconciler
	Evacuation *evacuation.Reconciler
	Updates    *volumeupdate.Reconciler
	Hotplug    *hotplug.Reconciler
	Keeps      *keep.Reconciler
	Releases   *diskrelease.Reconciler
}

// New returns controllers that read with read and write with writer.
func New(read *observed.Reader, writer *cluster.Writer, clock clock.PassiveClock) *Controllers {
	said := &report.Reporter{Cluster: writer, Clock: clock}
	grants := &grant.Grants{Live: read.Live, Cluster: writer, Records: read.Records}
	recorder := &handover.Recorder{Cached: read.Cached, Live: read.Live, Cluster: writer}
	tries := &attempts.Maker{Cluster: writer, Clock: clock}
	machines := &compose.Reader{Read: read, Dry: writer, Clock: clock}
	status := &movestatus.Reporter{Cached: read.Cached, Report: said, Cluster: writer, Clock: clock}
	c := &Controllers{Read: read,
		Evacuation: &evacuation.Reconciler{Read: read, Cluster: writer, Tries: tries},
		Updates:    &volumeupdate.Reconciler{Read: read, Cluster: writer, Tries: tries},
		Hotplug:    &hotplug.Reconciler{Read: read, Cluster: writer, Grants: grants},
		Keeps:      &keep.Reconciler{Cluster: writer},
		Releases:   &diskrelease.Reconciler{Read: read, Cluster: writer, HandOver: recorder},
		Migration:  &migration.Reconciler{Read: read, Cluster: writer, Clock: clock, Grants: grants, HandOver: recorder, Tries: tries, Status: status},
		Offline:    &offlinemove.Reconciler{Read: read, Machines: machines, Cluster: writer, Grants: grants, HandOver: recorder, Status: status},
	}
	c.VM = &vm.Reconciler{Read: read, Machines: machines, Cluster: writer, Report: said, Updates: c.Updates}
	c.Instance = &instance.Reconciler{Read: read, Cluster: writer, Clock: clock, Report: said, Grants: grants, Releases: c.Releases, Evacuation: c.Evacuation,
		Updates: c.Updates, Hotplug: c.Hotplug, Keeps: c.Keeps}
	return c
}
