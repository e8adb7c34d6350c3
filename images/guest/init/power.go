//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
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

// keyPower is KEY_POWER of the kernel's input event codes, evKey its type EV_KEY.
const (
	evKey    = 1
	keyPower = 116
)

// inputEvent is struct input_event of a 64-bit kernel.
type inputEvent struct {
	_          [16]byte // when
	Type, Code uint16
	Value      int32
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
			if err := awaitPowerKey(path); err != nil {
				g.say("error: power button: %v", err)
				return
			}
			g.say("power button pressed")
			g.obey("poweroff")
		}()
	}
}

func awaitPowerKey(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open input device: %w", err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 64*int(unsafe.Sizeof(inputEvent{})))
	for {
		n, err := f.Read(buf)
		if err != nil {
			return fmt.Errorf("read input device: %w", err)
		}
		events := make([]inputEvent, n/int(unsafe.Sizeof(inputEvent{})))
		if err := binary.Read(bytes.NewReader(buf[:n]), binary.LittleEndian, events); err != nil {
			return fmt.Errorf("decode input event: %w", err)
		}
		for _, e := range events {
			if e.Type == evKey && e.Code == keyPower && e.Value == 1 {
				return nil
			}
		}
	}
}
