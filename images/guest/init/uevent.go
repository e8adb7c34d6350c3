//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uevent is an announcement of the kernel that a device was added, removed or changed.
type uevent struct {
	Action, Subsystem, DevType, DevName string
}

// parseUevent reads a kernel message: "add@/devices/..." and KEY=value strings, each ended by a zero byte.
func parseUevent(message []byte) uevent {
	var e uevent
	for field := range strings.SplitSeq(string(message), "\x00") {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			continue
		}
		switch key {
		case "ACTION":
			e.Action = value
		case "SUBSYSTEM":
			e.Subsystem = value
		case "DEVTYPE":
			e.DevType = value
		case "DEVNAME":
			e.DevName = value
		}
	}
	return e
}

// listenUevents subscribes to the kernel's announcements. On an error the channel is closed, never nil, so that readers need not care.
func listenUevents() (<-chan uevent, error) {
	events := make(chan uevent, 256)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		close(events)
		return events, fmt.Errorf("open uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		close(events)
		return events, fmt.Errorf("bind uevent socket: %w", err)
	}
	go func() {
		buf := make([]byte, 16<<10) // the kernel's own limit is 2 KiB of variables and the path
		for {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				continue // ENOBUFS when too many came at once: some are lost, the next still count
			}
			events <- parseUevent(buf[:n])
		}
	}()
	return events, nil
}

// settle reads events until none came for quiet, or until limit has passed.
func settle(events <-chan uevent, quiet, limit time.Duration) {
	end := time.After(limit)
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-time.After(quiet):
			return
		case <-end:
			return
		}
	}
}

// watch says what happens to disks from now on.
func (g *guest) watch(events <-chan uevent) {
	for e := range events {
		if e.Subsystem != "block" || e.DevType != "disk" {
			continue
		}
		switch e.Action {
		case "add":
			g.say("disk added %s", readDisk(e.DevName))
		case "remove":
			g.say("disk removed %s", e.DevName)
		case "change":
			g.say("disk changed %s", readDisk(e.DevName))
		}
	}
}
