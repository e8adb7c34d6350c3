// Package early lets a guest run while a worker still fills some of its disks: the guest has such a disk from the worker first, and from
// its file once it is complete.
package early

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
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

// openTimeout is how long the launcher waits for the worker that serves a disk while it fills it. A worker that was killed is replaced after a
// pause.
const openTimeout = time.Minute

// Open returns the disk at path as its worker serves it; nil if no worker fills it, or if it is complete. The worker stays while the
// connection in the disk is open, so that QEMU can connect to it too.
func Open(ctx context.Context, path string) (*backing.Disk, error) {
	if _, err := os.Lstat(earlyboot.Socket(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(openTimeout); ; {
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

// greet connects to an NBD server and reads its greeting: a server that has ended accepts connections for a moment, and sends nothing.
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

// goodbye is the message of an NBD client that ends the negotiation.
const goodbye = "\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x02\x00\x00\x00\x00"

// leave closes a connection that no disk was negotiated on.
func leave(c net.Conn) {
	_, _ = c.Write([]byte(goodbye)) // closing the connection ends it as well
	_ = c.Close()
}

// Disks are the disks that were being filled when the guest was started. When one is complete, QEMU gets its file in place of the worker's
// socket, which the guest does not notice. One goroutine owns it.
type Disks struct {
	qemu  *qmp.Monitor
	log   *slog.Logger
	disks map[string]string // the files of the disks that QEMU has from their workers, by volume
	// hold pauses the guest, or ends that pause, because one of its disks will not be completed.
	Hold func(bool) error
	// said gets the reason for the pause; empty if there is none.
	Said *atomic.Pointer[string]
	held bool
	Busy func() bool // reports whether the guest is being moved
}

// New returns the disks that are being filled, and closes the launcher's own connections to their workers: QEMU is connected.
func New(qemu *qmp.Monitor, log *slog.Logger, disks map[string]backing.Disk) *Disks {
	e := &Disks{qemu: qemu, log: log, disks: map[string]string{}}
	for volume, b := range disks {
		if b.Early != nil {
			e.disks[volume] = b.Path
			leave(b.Early)
		}
	}
	return e
}

// Volumes lists the disks that are being filled.
func (e *Disks) Volumes() []string { return slices.Sorted(maps.Keys(e.disks)) }

// Run looks after the disks until all are complete or the guest ends.
func (e *Disks) Run(ended <-chan struct{}) {
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
}

// look gives QEMU the files of disks that are complete, and pauses the guest while a disk will not be completed.
func (e *Disks) look() {
	var bad []string
	for _, volume := range slices.Sorted(maps.Keys(e.disks)) {
		path := e.disks[volume]
		if why := earlyboot.Verdict.Of(path); why != "" {
			bad = append(bad, fmt.Sprintf("volume %s will not be completed: %s", volume, why))
		}
		if _, err := os.Stat(path); err != nil || e.Busy() {
			continue
		}
		if err := e.move(volume, path); err != nil {
			e.log.Warn("QEMU still has a disk from the worker that filled it", "volume", volume, "error", err.Error())
			continue
		}
		delete(e.disks, volume)
		e.log.Info("QEMU has the file of a disk that was filled while the guest ran", "volume", volume)
	}
	if hold := len(bad) > 0; hold != e.held {
		if err := e.Hold(hold); err != nil {
			e.log.Warn("the guest is not paused although its disk will not be completed", "error", err.Error())
			return
		}
		e.held = hold
	}
	text := ""
	if e.held {
		text = strings.Join(bad, "; ")
	}
	e.Said.Store(&text)
}

// move replaces the node of the worker's socket by a node of the file, below the node of the format, which the guest's device uses. The
// file's node gets the name that the socket's had, because libvirt expects that name when it removes the disk; until the name is free a second
// node of the file is used. A move that was interrupted continues where it was when it is tried again.
func (e *Disks) move(volume, path string) error {
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
			if err := e.add(between, path, "off", nodes[top]); err != nil { // with a lock on the file the next node could not open it
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

// add opens the file with the options of the format's node.
func (e *Disks) add(name, path, locking string, as qmp.Node) error {
	aio := "threads"
	if as.Cache.Direct {
		aio = "native"
	}
	_, err := e.qemu.Run("blockdev-add", map[string]any{"driver": "file", "node-name": name, "filename": path, "locking": locking, "aio": aio,
		"discard": "unmap", "read-only": as.ReadOnly, "cache": map[string]bool{"direct": as.Cache.Direct, "no-flush": as.Cache.NoFlush}})
	return err
}

// put makes the format read and write another node.
func (e *Disks) put(format qmp.Node, file string) error {
	_, err := e.qemu.Run("blockdev-reopen", map[string]any{"options": []any{map[string]any{"driver": "raw", "node-name": format.Name, "file": file,
		"discard": "unmap", "read-only": format.ReadOnly, "cache": map[string]bool{"direct": format.Cache.Direct, "no-flush": format.Cache.NoFlush}}}})
	return err
}

// drop closes a node.
func (e *Disks) drop(name string) error {
	_, err := e.qemu.Run("blockdev-del", map[string]string{"node-name": name})
	return err
}

// WithoutSource describes those disks that are being filled whose source does not answer.
func WithoutSource(disks map[string]backing.Disk) []string {
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
