package requests

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// reset resets the machine at once, as a reset button does. Data that the guest has not written to its disks is lost.
func (r *Server) reset() error {
	if err := r.Guest.Libvirt.Virt.DomainReset(r.Guest.Domain, 0); err != nil {
		return fmt.Errorf("reset the guest: %w", err)
	}
	r.Freezer.Reset()
	return nil
}

// softReboot asks the guest to reboot: through its agent, or, if no agent answers, with the power button, after which libvirt starts the guest
// again.
func (r *Server) softReboot() error {
	if r.Pauser.Paused() {
		return errors.New("VMI is paused") // the message that clients know from KubeVirt
	}
	if err := r.Agent.Query("guest-ping", nil); err == nil {
		err = r.Guest.Libvirt.Virt.DomainReboot(r.Guest.Domain, libvirt.DomainRebootGuestAgent)
		var e libvirt.Error
		if err == nil || errors.As(err, &e) && e.Code == uint32(libvirt.ErrAgentUnresponsive) { // an agent that reboots does not answer
			return nil
		}
		return fmt.Errorf("ask the guest agent to reboot: %w", err)
	}
	if err := r.Guest.Libvirt.Virt.DomainReboot(r.Guest.Domain, libvirt.DomainRebootAcpiPowerBtn); err != nil {
		return fmt.Errorf("press the power button: %w", err)
	}
	return nil
}

// freezeFor freezes the guest's filesystems for a user. It returns an error if the agent does not answer.
func (r *Server) freezeFor(seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 32)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a number of seconds", seconds)
	}
	return r.Freezer.Hold(time.Duration(n) * time.Second)
}

// pause pauses the guest for a user.
func (r *Server) pause() error {
	if why := launcherapi.Pausable(r.Guest.Machine.Spec); why != "" {
		return errors.New(why)
	}
	return r.Pauser.Pause()
}

// unpause ends the pause of a user.
func (r *Server) unpause() error { return r.Pauser.Unpause() }
