package agent

import (
	"log/slog"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/access"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// describeAgain is how often a guest is asked about itself. The launcher reports the last answers, so a caller of it never waits for the guest.
const describeAgain = 10 * time.Second

// Description describes a running guest, for the status of its instance.
type Description struct {
	System  *kubevirt.GuestOS // nil if the agent does not answer
	Targets map[string]string // the device names of disks, by volume
	Access  *string           // why the agent has not set all of accessCredentials; empty if it has; nil if there is nothing to set, or no agent
}

// Watch asks the guest about itself until it ends, and passes what is known to store; nil when the guest has ended.
func Watch(g guest.Guest, log *slog.Logger, store func(*Description), ended <-chan struct{}) {
	tick := time.NewTicker(describeAgain)
	defer tick.Stop()
	defer store(nil)
	keys := &access.Agent{Mounts: launcherapi.MountDir, Credentials: g.Machine.Spec.AccessCredentials, Log: log,
		Ask: func(command string, arguments any) error { return g.AskAgent(command, arguments, nil) }}
	var d *Description
	for {
		d = Agent{g}.describe(d)
		d.Access = keys.Set(d.System != nil)
		store(d)
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// describe asks the guest about itself. The agent is asked for the operating system once: while filesystems are frozen it answers a ping, and
// not that question.
func (r Agent) describe(before *Description) *Description {
	now := &Description{Targets: targets(r.Guest)}
	if r.Ping() != nil {
		return now
	}
	if before != nil && before.System != nil && *before.System != (kubevirt.GuestOS{}) {
		now.System = before.System
		return now
	}
	is, _ := r.os() // an agent that does not know the question counts as an agent too
	now.System = &is
	return now
}

// targets returns the device names of the guest's disks, by volume; nil if libvirt does not answer.
func targets(g guest.Guest) map[string]string {
	d, _, err := g.Describe(libvirt.DomainXMLMigratable)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for name, device := range domain.Targets(d) {
		if volume, ok := qmp.VolumeOf(name); ok {
			out[volume] = device
		}
	}
	return out
}
