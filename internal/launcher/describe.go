package launcher

import (
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/access"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// describeAgain is how often a guest is looked at. Nobody waits for the answer: the launcher tells what it knows.
const describeAgain = 10 * time.Second

// description is what is known of a running guest, for the status of its instance.
type description struct {
	agent   *kubevirt.GuestOS // nil: the agent does not answer
	targets map[string]string // device names, by volume
	access  *string           // why the agent has not set all of accessCredentials; empty: it has; nil: there is nothing to set, or no agent
}

// startDescribing looks at the guest until it ends.
func (l *Launcher) startDescribing(r *running, ended <-chan struct{}) {
	go func() {
		tick := time.NewTicker(describeAgain)
		defer tick.Stop()
		defer l.described.Store(nil)
		access := &access.Agent{Mounts: launcherapi.MountDir, Credentials: r.spec.AccessCredentials, Log: l.Log,
			Ask: func(command string, arguments any) error { return r.agent(command, arguments, nil) }}
		for {
			d := r.describe(l.described.Load())
			d.access = access.Set(d.agent != nil)
			l.described.Store(d)
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	}()
}

// describe looks at the guest. An agent tells its operating system once: it answers a ping while filesystems are frozen, and no such question.
func (r *running) describe(before *description) *description {
	now := &description{targets: r.targets()}
	if r.agent("guest-ping", nil, nil) != nil {
		return now
	}
	if before != nil && before.agent != nil && *before.agent != (kubevirt.GuestOS{}) {
		now.agent = before.agent
		return now
	}
	is, _ := r.os() // an agent that does not know the question is an agent all the same
	now.agent = &is
	return now
}

// targets are the device names of the guest's disks, by volume; nil if libvirt does not tell.
func (r *running) targets() map[string]string {
	text, err := r.h.Virt.DomainGetXMLDesc(r.dom, libvirt.DomainXMLMigratable)
	var d libvirtxml.Domain
	if err != nil || d.Unmarshal(text) != nil {
		return nil
	}
	out := map[string]string{}
	for name, device := range domain.Targets(&d) {
		if volume, ok := qmp.VolumeOf(name); ok {
			out[volume] = device
		}
	}
	return out
}
