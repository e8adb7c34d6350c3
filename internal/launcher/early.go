package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

// earlyWait is for how long a launcher waits for the worker that serves a disk which is being filled: one that was killed is
// replaced after a pause.
const earlyWait = time.Minute

// served is the disk at path if a worker fills it and serves it meanwhile; nil if there is none, or the disk is there. While the
// connection in it is open the worker stays, so QEMU finds it too.
func served(ctx context.Context, path string) (*backing.Disk, error) {
	if _, err := os.Lstat(earlyboot.Socket(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(earlyWait); ; {
		if _, err := os.Stat(path); err == nil {
			return nil, nil
		}
		c, err := greet(earlyboot.Socket(path))
		if err == nil {
			return &backing.Disk{Path: path, Format: "raw", Remote: backing.OnSocket(earlyboot.Socket(path)), Early: c}, nil
		}
		select {
		case <-tick.C:
		case <-late:
			return nil, fmt.Errorf("it is being filled, and the worker that serves it meanwhile does not answer: %w", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// greet connects to a server of NBD. One that has ended takes connections for a moment, and says nothing.
func greet(socket string) (net.Conn, error) {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	hello := make([]byte, 18)
	if _, err := io.ReadFull(c, hello); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

// goodbye is the client's half of a negotiation that it breaks off.
const goodbye = "\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x02\x00\x00\x00\x00"

func leave(c net.Conn) {
	_, _ = c.Write([]byte(goodbye)) // it goes either way
	_ = c.Close()
}

// fillings are the disks that were being filled when the guest was started. When one is complete QEMU is moved from the worker's
// socket to the disk itself, without the guest noticing. One goroutine owns it.
type fillings struct {
	qemu  *qmp.Monitor
	log   *slog.Logger
	disks map[string]string // by volume: the file of each that QEMU has from its worker
	// hold stops the guest, or lets it go on, because one of its disks will not be completed as things are.
	hold func(bool) error
	// said is what there is to say of that; empty: nothing.
	said *atomic.Pointer[string]
	held bool
	busy func() bool // the guest is being sent elsewhere
}

// startEarly looks after those disks until the guest ends.
func (l *Launcher) startEarly(qemu *qmp.Monitor, p *pauser, ended <-chan struct{}) {
	e := &fillings{qemu: qemu, log: l.Log, disks: map[string]string{}, hold: p.hold, said: &l.condemned, busy: l.moves.busy}
	for volume, b := range l.disks {
		if b.Early != nil {
			e.disks[volume] = b.Path
			leave(b.Early) // QEMU is connected itself
		}
	}
	if len(e.disks) == 0 {
		return
	}
	all := slices.Sorted(maps.Keys(e.disks))
	l.early.Store(&all)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for len(e.disks) > 0 {
			select {
			case <-tick.C:
				e.look()
			case <-ended:
				return
			}
		}
	}()
}

func (e *fillings) look() {
	var bad []string
	for _, volume := range slices.Sorted(maps.Keys(e.disks)) {
		path := e.disks[volume]
		if why := earlyboot.Verdict.Of(path); why != "" {
			bad = append(bad, fmt.Sprintf("volume %s will not be completed: %s", volume, why))
		}
		if _, err := os.Stat(path); err != nil || e.busy() {
			continue
		}
		if err := e.move(volume, path); err != nil {
			e.log.Warn("the guest has a disk still from the worker that filled it", "volume", volume, "error", err.Error())
			continue
		}
		delete(e.disks, volume)
		e.log.Info("the guest has a disk itself that was filled while it ran", "volume", volume)
	}
	if hold := len(bad) > 0; hold != e.held {
		if err := e.hold(hold); err != nil {
			e.log.Warn("the guest is not paused although its disk will not be completed", "error", err.Error())
			return
		}
		e.held = hold
	}
	text := ""
	if e.held {
		text = strings.Join(bad, "; ")
	}
	e.said.Store(&text)
}

// move puts the file in the place of the worker's socket, under the format's node, which is the guest's. The file's node ends with
// the name that the socket's had, so that libvirt finds what it expects when it takes the disk from the guest; for a moment there
// has to be another. Whatever it is interrupted at, it goes on there when it is tried again.
func (e *fillings) move(volume, path string) error {
	top, _, err := e.qemu.Disk(volume)
	if err != nil {
		return err
	}
	nodes, err := e.qemu.Nodes()
	if err != nil {
		return err
	}
	base, ok := strings.CutSuffix(top, "-format")
	if !ok {
		return fmt.Errorf("QEMU has the disk on %s, which is no format of libvirt's", top)
	}
	name, between := base+"-storage", base+"-filled"
	if nodes[name].Driver != "file" {
		if nodes[between].Name == "" {
			if err := e.add(between, path, "off", nodes[top]); err != nil { // a lock would keep the next from the file
				return err
			}
		}
		if err := e.put(nodes[top], between); err != nil {
			return err
		}
		if nodes[name].Name != "" {
			if err := e.drop(name); err != nil {
				return err
			}
		}
		if err := e.add(name, path, "auto", nodes[top]); err != nil {
			return err
		}
	}
	if err := e.put(nodes[top], name); err != nil {
		return err
	}
	if nodes, err = e.qemu.Nodes(); err == nil && nodes[between].Name != "" {
		err = e.drop(between)
	}
	return err
}

// add opens the file, as the format above it was opened.
func (e *fillings) add(name, path, locking string, as qmp.Node) error {
	aio := "threads"
	if as.Cache.Direct {
		aio = "native"
	}
	_, err := e.qemu.Run("blockdev-add", map[string]any{"driver": "file", "node-name": name, "filename": path, "locking": locking, "aio": aio,
		"discard": "unmap", "read-only": as.ReadOnly, "cache": map[string]bool{"direct": as.Cache.Direct, "no-flush": as.Cache.NoFlush}})
	return err
}

// put has the format read and write another node.
func (e *fillings) put(format qmp.Node, file string) error {
	_, err := e.qemu.Run("blockdev-reopen", map[string]any{"options": []any{map[string]any{"driver": "raw", "node-name": format.Name, "file": file,
		"discard": "unmap", "read-only": format.ReadOnly, "cache": map[string]bool{"direct": format.Cache.Direct, "no-flush": format.Cache.NoFlush}}}})
	return err
}

func (e *fillings) drop(name string) error {
	_, err := e.qemu.Run("blockdev-del", map[string]string{"node-name": name})
	return err
}

// cutOff says of the disks that the guest was started with before they were full whose source does not answer it.
func cutOff(disks map[string]backing.Disk) []string {
	var out []string
	for _, volume := range slices.Sorted(maps.Keys(disks)) {
		if b := disks[volume]; b.Early != nil {
			if why := earlyboot.Away.Of(b.Path); why != "" {
				out = append(out, fmt.Sprintf("the source of volume %s does not answer %s", volume, why))
			}
		}
	}
	return out
}

// earlyText joins what is said of a guest that waits with what is said of a disk that will not be completed.
func (l *Launcher) earlyText(w waitsFor) waitsFor {
	if text := l.condemned.Load(); text != nil && *text != "" {
		return waitsFor{text: *text, cause: launcherapi.DiskCondemned}
	}
	return w
}
