//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
)

func (g *guest) poweroff([]string) (string, error) {
	g.say("powering off")
	return "", end(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func (g *guest) reboot([]string) (string, error) {
	g.say("rebooting")
	return "", end(unix.LINUX_REBOOT_CMD_RESTART)
}

// crash makes the kernel panic, as it does when process 1 goes.
func (g *guest) crash([]string) (string, error) {
	g.say("crashing")
	os.Exit(1)
	return "", nil
}

func end(how int) error {
	unix.Sync()
	if err := unix.Reboot(how); err != nil {
		return fmt.Errorf("leave the machine: %w", err)
	}
	select {}
}

// servePowerButtons powers off when the ACPI power button is pressed, which is how a host asks for a graceful end. The button is an
// input device; there may be two (one fixed, one in the ACPI tables), and listening to a keyboard as well does no harm.
func (g *guest) servePowerButtons() {
	paths, _ := filepath.Glob("/dev/input/event*")
	if len(paths) == 0 {
		g.say("error: no power button found")
	}
	for _, path := range paths {
		go func() {
			if err := hardware.AwaitPowerKey(path); err != nil {
				g.say("error: power button: %v", err)
				return
			}
			g.say("power button pressed")
			g.obey("poweroff")
		}()
	}
}
