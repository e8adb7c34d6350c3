// Package guest is the handle of a guest that this launcher has: its libvirt domain, the order it was started from, and who has paused it.
//
// It does not start disks, moves or anything that looks after the guest.
package guest

import (
	"context"
	"encoding/json"
	"fmt"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Guest is a guest of this launcher.
type Guest struct {
	Libvirt *libvirtd.Daemon
	Domain  libvirt.Domain
	Machine launcherapi.Machine
	Events  <-chan libvirt.DomainEventLifecycleMsg
	Paused  bool // a user wants it to stay paused after its start
}

// Create starts the guest's QEMU from a domain document. The guest's processors do not run yet.
func Create(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine, xml string) (Guest, error) {
	events, err := h.Virt.LifecycleEvents(context.WithoutCancel(ctx))
	if err != nil {
		return Guest{}, fmt.Errorf("listen to libvirt: %w", err)
	}
	dom, err := h.Virt.DomainCreateXML(xml, libvirt.DomainStartPaused)
	if err != nil {
		return Guest{}, err
	}
	return Guest{h, dom, m, events, m.Spec.StartsPaused()}, nil
}

// Describe returns the domain as it is now, and its document, with these flags of libvirt.
func (g Guest) Describe(flags libvirt.DomainXMLFlags) (*libvirtxml.Domain, string, error) {
	text, err := g.Libvirt.Virt.DomainGetXMLDesc(g.Domain, flags)
	if err != nil {
		return nil, "", fmt.Errorf("ask libvirt for the guest: %w", err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return nil, "", fmt.Errorf("read what libvirt says of the guest: %w", err)
	}
	return &d, text, nil
}

// Tell runs a command of QEMU's human monitor.
func (g Guest) Tell(line string) error { return g.Libvirt.Tell(g.Domain.Name, line) }

// AskAgent runs a command of the guest agent, through libvirt, which is connected to the agent. The agent's answer is decoded into answer, if that
// is not nil.
func (g Guest) AskAgent(command string, arguments, answer any) error {
	text, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	const seconds = 5
	said, err := g.Libvirt.Virt.QEMUDomainAgentCommand(g.Domain, string(text), seconds, 0)
	if err != nil {
		return fmt.Errorf("ask the guest agent to %s: %w", command, err)
	}
	if answer == nil {
		return nil
	}
	if len(said) == 0 {
		return fmt.Errorf("the guest agent says nothing to %s", command)
	}
	return json.Unmarshal([]byte(said[0]), &struct {
		Return any `json:"return"`
	}{answer})
}
