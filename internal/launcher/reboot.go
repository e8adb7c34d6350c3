package launcher

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
)

// reset has the machine begin again at once, as its button does. What the guest has not written is lost.
func (r *running) reset() error {
	if err := r.h.Virt.DomainReset(r.dom, 0); err != nil {
		return fmt.Errorf("reset the guest: %w", err)
	}
	r.quiet.reset()
	return nil
}

// softReboot asks the guest to reboot: its agent, or if none answers, by the power button, after which the guest is started again.
func (r *running) softReboot() error {
	if r.pauser.is() {
		return errors.New("VMI is paused") // the words clients know
	}
	if err := r.query("guest-ping", nil); err == nil {
		err = r.h.Virt.DomainReboot(r.dom, libvirt.DomainRebootGuestAgent)
		var e libvirt.Error
		if err == nil || errors.As(err, &e) && e.Code == uint32(libvirt.ErrAgentUnresponsive) { // an agent that reboots does not answer
			return nil
		}
		return fmt.Errorf("ask the guest agent to reboot: %w", err)
	}
	if err := r.h.Virt.DomainReboot(r.dom, libvirt.DomainRebootAcpiPowerBtn); err != nil {
		return fmt.Errorf("press the power button: %w", err)
	}
	return nil
}

// freezeFor freezes the guest's filesystems because a person asked for it. A guest whose agent does not answer is not frozen.
func (r *running) freezeFor(seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 32)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a number of seconds", seconds)
	}
	return r.quiet.hold(time.Duration(n) * time.Second)
}
