//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
)

const agentPort = "org.qemu.guest_agent.0"

// freezer lets writes happen until it is frozen; then they wait for the thaw.
type freezer struct {
	mu     sync.Mutex
	thawed chan struct{} // nil when not frozen
	busy   sync.WaitGroup
}

// begin waits until writing is allowed and returns what to call when the write is done.
func (f *freezer) begin() func() {
	for {
		f.mu.Lock()
		thawed := f.thawed
		if thawed == nil {
			f.busy.Add(1)
			f.mu.Unlock()
			return f.busy.Done
		}
		f.mu.Unlock()
		<-thawed
	}
}

// freeze returns when no write is under way. Freezing twice is an error, as it is for qemu-ga.
func (f *freezer) freeze() error {
	f.mu.Lock()
	if f.thawed != nil {
		f.mu.Unlock()
		return fmt.Errorf("the guest is frozen already")
	}
	f.thawed = make(chan struct{})
	f.mu.Unlock()
	f.busy.Wait()
	return nil
}

// thaw reports whether the guest was frozen.
func (f *freezer) thaw() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		return false
	}
	close(f.thawed)
	f.thawed = nil
	return true
}

func (f *freezer) frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawed != nil
}

// serveAgent answers the QEMU guest agent protocol on its port, if the machine has one: as much of it as an orchestrator needs to
// know that the guest lives, to freeze it for a snapshot and to end it.
func (g *guest) serveAgent() {
	path := hardware.Port(agentPort)
	if path == "" {
		return
	}
	port, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		g.say("error: guest agent: %v", err)
		return
	}
	g.say("guest agent on %s", path)
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for range again.C {
		// A read ends when no client is connected on the host's side, and can continue when one connects.
		g.talk(port)
	}
}

type agentRequest struct {
	Execute   string `json:"execute"`
	ID        any    `json:"id,omitempty"`
	Arguments struct {
		ID   int64  `json:"id"`
		Mode string `json:"mode"`
	} `json:"arguments"`
}

type agentReply struct {
	Return any         `json:"return,omitempty"`
	Error  *agentError `json:"error,omitempty"`
	ID     any         `json:"id,omitempty"`
}

type agentError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// sentinel is the byte that starts a request or reply whose sender cannot know what was left in the line before it.
const sentinel = 0xff

func (g *guest) talk(port io.ReadWriter) {
	lines := bufio.NewScanner(port)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if i := bytes.LastIndexByte(line, sentinel); i >= 0 {
			line = line[i+1:]
		}
		if len(line) == 0 {
			continue
		}
		var request agentRequest
		reply := agentReply{}
		if err := json.Unmarshal(line, &request); err != nil {
			reply.Error = &agentError{"GenericError", "not a JSON request: " + err.Error()}
		} else {
			reply = g.answer(request)
		}
		text, err := json.Marshal(reply)
		if err != nil {
			continue
		}
		if request.Execute == "guest-sync-delimited" {
			text = append([]byte{sentinel}, text...)
		}
		if _, err := port.Write(append(text, '\n')); err != nil {
			return
		}
	}
}

var agentCommands = map[string]func(g *guest, r agentRequest) (any, error){
	"guest-ping":                   (*guest).agentPing,
	"guest-sync":                   (*guest).agentSync,
	"guest-sync-delimited":         (*guest).agentSync,
	"guest-fsfreeze-status":        (*guest).agentFreezeStatus,
	"guest-fsfreeze-freeze":        (*guest).agentFreeze,
	"guest-fsfreeze-thaw":          (*guest).agentThaw,
	"guest-shutdown":               (*guest).agentShutdown,
	"guest-get-osinfo":             (*guest).agentOSInfo,
	"guest-network-get-interfaces": (*guest).agentInterfaces,
	"guest-get-host-name":          (*guest).agentHostName,
	"guest-get-timezone":           (*guest).agentTimezone,
	"guest-get-users":              (*guest).agentUsers,
	"guest-get-fsinfo":             (*guest).agentFilesystems,
}

func (g *guest) answer(r agentRequest) agentReply {
	if r.Execute == "guest-info" { // not in the table, because it lists the table
		return agentReply{Return: agentInfo(), ID: r.ID}
	}
	run, ok := agentCommands[r.Execute]
	if !ok {
		return agentReply{Error: &agentError{"CommandNotFound", "The command " + r.Execute + " has not been found"}, ID: r.ID}
	}
	result, err := run(g, r)
	if err != nil {
		return agentReply{Error: &agentError{"GenericError", err.Error()}, ID: r.ID}
	}
	return agentReply{Return: result, ID: r.ID}
}

func agentInfo() any {
	type command struct {
		Name            string `json:"name"`
		Enabled         bool   `json:"enabled"`
		SuccessResponse bool   `json:"success-response"`
	}
	commands := []command{{"guest-info", true, true}}
	for name := range agentCommands {
		commands = append(commands, command{name, true, name != "guest-shutdown"})
	}
	slices.SortFunc(commands, func(a, b command) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return map[string]any{"version": "7.2.0", "supported_commands": commands}
}

func (*guest) agentPing(agentRequest) (any, error) { return struct{}{}, nil }

func (*guest) agentSync(r agentRequest) (any, error) { return r.Arguments.ID, nil }

func (g *guest) agentFreezeStatus(agentRequest) (any, error) {
	if g.writes.frozen() {
		return "frozen", nil
	}
	return "thawed", nil
}

// agentFreeze answers with the number of filesystems frozen. There is one place that is written to, the disks as a whole.
func (g *guest) agentFreeze(agentRequest) (any, error) {
	if err := g.writes.freeze(); err != nil {
		return nil, err
	}
	g.flush()
	g.say("frozen")
	return 1, nil
}

func (g *guest) agentThaw(agentRequest) (any, error) {
	if !g.writes.thaw() {
		return 0, nil
	}
	g.say("thawed")
	return 1, nil
}

// syncDisks makes everything written so far durable: sync(2) leaves the write caches of disks alone.
func syncDisks() {
	for _, d := range disks() {
		if f, err := os.OpenFile("/dev/"+d.Name, os.O_RDWR, 0); err == nil {
			_ = f.Sync()
			_ = f.Close()
		}
	}
}

func (g *guest) agentShutdown(r agentRequest) (any, error) {
	g.say("guest agent asked for shutdown mode=%s", r.Arguments.Mode)
	if r.Arguments.Mode == "reboot" {
		_, err := g.reboot(nil)
		return nil, err
	}
	_, err := g.poweroff(nil)
	return nil, err
}

func (*guest) agentOSInfo(agentRequest) (any, error) {
	return map[string]string{
		"id": "berth-guest", "name": "Berth test guest", "pretty-name": "Berth test guest", "machine": "x86_64",
		"kernel-release": hardware.ReadLine("/proc/sys/kernel/osrelease"), "kernel-version": hardware.ReadLine("/proc/sys/kernel/version"),
	}, nil
}

func (*guest) agentHostName(agentRequest) (any, error) {
	return map[string]string{"host-name": "berth-guest"}, nil
}

func (*guest) agentTimezone(agentRequest) (any, error) {
	return map[string]any{"zone": "UTC", "offset": 0}, nil
}

// agentUsers is the user at the console: the guest has no other users.
func (*guest) agentUsers(agentRequest) (any, error) {
	return []map[string]any{{"user": "console", "login-time": 0.5}}, nil
}

// agentFilesystems are the mounts of the kernel; none of the guest's disks is mounted, so the root is all there is to fill.
func (*guest) agentFilesystems(agentRequest) (any, error) {
	var s unix.Statfs_t
	if err := unix.Statfs("/", &s); err != nil {
		return nil, fmt.Errorf("measure the root: %w", err)
	}
	return []map[string]any{{
		"name": "rootfs", "mountpoint": "/", "type": "rootfs", "disk": []any{},
		"used-bytes": (s.Blocks - s.Bfree) * uint64(s.Bsize), "total-bytes": s.Blocks * uint64(s.Bsize),
	}}, nil
}
