package launcher

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/diskspace"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/tool"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// maker makes the copies of a machine's volumes.
type maker struct {
	machine launcherapi.Machine
	remotes *remotes
	path    func(volume string) string
	note    func(volume string, change func(*launcherapi.Copy))
	log     *slog.Logger
	image   func(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) // makes the disk of a container image
	refused string                                                             // why nothing is to be asked of the node's cache of layers any more; empty: it may be
}

func newMaker(m launcherapi.Machine, r *remotes, p *progress, log *slog.Logger) *maker {
	k := &maker{machine: m, remotes: r, path: backing.CopyFile, note: p.change, log: log}
	k.image = k.imageDisk
	return k
}

// copy makes the guest's own disk, which begins as the master.
func (k *maker) copy(ctx context.Context, v kubevirt.Volume, master backing.Disk) (backing.Disk, error) {
	c := v.Copied()
	if c.Capacity != nil && c.Capacity.Sign() <= 0 {
		return backing.Disk{}, fmt.Errorf("copy.capacity is %s; it must be more than 0", c.Capacity)
	}
	k.note(v.Name, func(n *launcherapi.Copy) { n.Mode = c.Mode })
	path := k.path(v.Name)
	node, err := json.Marshal(master.Node())
	if err != nil {
		return backing.Disk{}, fmt.Errorf("describe the master: %w", err)
	}
	// The launcher may have been started again in its pod; what an earlier guest wrote is gone with it.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return backing.Disk{}, err
	}
	if err := k.overlay(ctx, v.Name, master, "json:"+string(node), path); err != nil {
		return backing.Disk{}, err
	}
	size, err := enlarge(ctx, path, c.Size)
	if err != nil {
		return backing.Disk{}, err
	}
	mayHave := writable(c, size, k.machine.Rooms[v.Name])
	if wholly(c.Mode) && mayHave < size {
		return backing.Disk{}, tooSmall(c, mayHave, size)
	}
	if c.Mode == kubevirt.CopyClone {
		if err := k.clone(ctx, v.Name, master, "json:"+string(node), path); err != nil {
			return backing.Disk{}, err
		}
		if _, err := enlarge(ctx, path, c.Size); err != nil {
			return backing.Disk{}, err
		}
	}
	k.note(v.Name, func(n *launcherapi.Copy) { n.Size = size })
	b := backing.Disk{Path: path, Format: "qcow2", Copied: true, CopyOnRead: c.Mode == kubevirt.CopyOnRead}
	if c.Mode != kubevirt.CopyClone {
		b.Master = &master
	}
	b.Limit, err = k.limit(v.Name, launcherapi.CopyFile(mayHave))
	if err != nil || b.Limit == 0 {
		return b, err
	}
	return b, extend(path, b.Limit)
}

// overlay holds what differs from the master. QEMU is told what it lies over; it does not read it from the file.
func (k *maker) overlay(ctx context.Context, volume string, master backing.Disk, node, path string) error {
	if err := k.program(ctx, volume, master, nil, "create", "-q", "-f", "qcow2", "-b", node, "-F", master.Format, path); err != nil {
		return err
	}
	size, err := virtualSize(path)
	k.note(volume, func(c *launcherapi.Copy) { c.Total = size })
	return err
}

// clone copies the whole master, many parts at once, and leaves out what is zero. Then the master is let go.
func (k *maker) clone(ctx context.Context, volume string, master backing.Disk, node, path string) error {
	const whole = 100_00 // in hundredths of a percent
	say := func(n int64) { k.note(volume, func(c *launcherapi.Copy) { c.Done, c.Total = n, whole }) }
	say(0)
	err := k.program(ctx, volume, master, &meter{say: say}, "convert", "-p", "-W", "-m", "16", "-O", "qcow2", node, path)
	if err != nil {
		return err
	}
	if master.Remote != nil {
		k.remotes.letGo(volume)
	}
	k.note(volume, letGo)
	return nil
}

// limit is how long the file may become that needs this many bytes; 0 where a claim of its own has just the room: there the
// medium is full when it is full, and a claim can grow.
func (k *maker) limit(volume string, needs int64) (int64, error) {
	if k.machine.Media[volume] == "" {
		return needs, nil
	}
	f, err := os.Open(k.path(volume))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	// A claim has at least what was asked for, and its filesystem takes some of it. It is larger if its class gives larger ones.
	if own, _, err := diskspace.Own(f, needs+needs/2+128<<20); err != nil || own {
		return 0, err
	}
	return needs, nil
}

// writable is how much the guest may write. most is a bound for a disk whose size was not known before; 0: it was.
func writable(c *kubevirt.DiskCopy, size, most int64) int64 {
	switch {
	case c.Capacity != nil:
		return c.Capacity.Value()
	case most > 0:
		return min(size, most)
	}
	return size
}

func tooSmall(c *kubevirt.DiskCopy, room, size int64) error {
	if c.Capacity == nil {
		return fmt.Errorf("copy.capacity is not said, which gives a copy %d bytes: one of mode %s needs as much room as its disk has, which is %d bytes", room, c.Mode, size)
	}
	return fmt.Errorf("copy.capacity is %d bytes: a copy of mode %s needs as much room as its disk has, which is %d bytes", room, c.Mode, size)
}

// program runs qemu-img on a master, with its login if it is at a server.
func (k *maker) program(ctx context.Context, volume string, master backing.Disk, said io.Writer, args ...string) error {
	if master.Remote != nil {
		return k.remotes.program(ctx, k.machine, master.Remote, k.remotes.logins[volume], said, "qemu-img", args...)
	}
	if err := tool.RunTo(exec.CommandContext(ctx, "qemu-img", args...), said); err != nil {
		return fmt.Errorf("qemu-img %s: %w", args[0], err)
	}
	return nil
}

// enlarge gives a new copy its size, if that is to be another than its master's, and says what it is.
func enlarge(ctx context.Context, path string, asked *kubevirt.Quantity) (int64, error) {
	has, err := virtualSize(path)
	switch {
	case err != nil || asked == nil || asked.Value() == has:
		return has, err
	case asked.Value() < has:
		return 0, fmt.Errorf("copy.size is %s and the master has %d bytes: a copy cannot be smaller than its master", asked, has)
	}
	if err := tool.Run(ctx, "qemu-img", "resize", "-q", "-f", "qcow2", path, fmt.Sprint(asked.Value())); err != nil {
		return 0, err
	}
	return virtualSize(path)
}

// virtualSize is the size of the disk in a qcow2 file that we made.
func virtualSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var head [32]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, fmt.Errorf("read the header of the copy: %w", err)
	}
	return int64(binary.BigEndian.Uint64(head[24:])), nil
}

// extend makes the file as long as it may become. QEMU is told not to go beyond: then a copy that is full pauses its guest,
// where a medium that is full would end the pod. It takes no room.
func extend(path string, limit int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > limit {
		return fmt.Errorf("copy.capacity is too small: an empty copy takes %d bytes", info.Size())
	}
	if err := os.Truncate(path, limit); err != nil {
		return fmt.Errorf("give the copy its room: %w", err)
	}
	return nil
}
