//go:build linux

// Command init is process 1 of the test guest: it loads the drivers, says on the console which disks it sees, and then does what it
// is told, line by line, by the kernel command line, a cloud-init volume and the console. It is the whole user space of the guest.
//
// Every line it writes starts with "berth-guest: ", so a test can tell it from the echo of its own typing and from the kernel. What it
// can be told is in command.go; the guest's README lists it for readers. It knows nothing of Kubernetes or of who runs it.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
)

// guest is the running machine: what it says and what must not happen at the same time.
type guest struct {
	saying sync.Mutex
	out    io.Writer
	// writes is held for reading while a disk is written to and for writing while the agent has frozen the guest, so that a
	// snapshot taken between freeze and thaw never sees half a write.
	writes freezer
	flush  func() // makes durable what was written to all disks

	churns  map[string]*churn // by what the command called the disk; commands come one at a time
	written atomic.Uint64     // blocks, by all of them
	memory  *memory           // that is written to; nil: none
}

func (g *guest) say(format string, args ...any) {
	g.saying.Lock()
	defer g.saying.Unlock()
	_, _ = fmt.Fprintf(g.out, "berth-guest: "+format+"\n", args...)
}

func main() {
	g := &guest{out: os.Stdout, flush: syncDisks}
	if err := hardware.MountKernelFilesystems(); err != nil {
		g.say("error: %v", err)
	}
	console, err := os.OpenFile("/dev/console", os.O_RDWR, 0)
	if err == nil {
		g.out = console
	}
	events, err := listenUevents()
	if err != nil {
		g.say("error: %v", err)
	}
	for _, err := range hardware.LoadModules() {
		g.say("error: %v", err)
	}
	// What drivers find arrives as events for a while: SCSI and SATA disks are probed in the background.
	settle(events, 250*time.Millisecond, 5*time.Second)
	// From here on only our own lines belong on the console, and what the kernel says when it dies.
	_, _, _ = unix.Syscall(unix.SYS_SYSLOG, syslogConsoleLevel, 0, 1)

	g.say("kernel %s firmware %s boot-id %s", hardware.ReadLine("/proc/sys/kernel/osrelease"), firmware(),
		hardware.ReadLine("/proc/sys/kernel/random/boot_id"))
	g.sayDisks()
	files := g.readCloudInit()
	go g.watch(events)
	go g.servePowerButtons()
	go g.serveAgent()
	go g.serveNetwork()
	g.say("ready")

	for line := range strings.SplitSeq(commandLineScript(hardware.ReadLine("/proc/cmdline")), ";") {
		g.obey(line)
	}
	for _, line := range files.script() {
		g.obey(line)
	}
	if console != nil {
		lines := bufio.NewScanner(console)
		for lines.Scan() {
			g.obey(lines.Text())
		}
		g.say("error: console ended: %v", lines.Err())
	}
	select {} // process 1 must never return: the kernel would panic
}

// syslogConsoleLevel is SYSLOG_ACTION_CONSOLE_LEVEL of syslog(2).
const syslogConsoleLevel = 8

func firmware() string {
	if _, err := os.Stat("/sys/firmware/efi"); err == nil {
		return "uefi"
	}
	return "bios"
}
