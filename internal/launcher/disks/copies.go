package disks

import (
	"context"
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
	"github.com/berth-vm/berth/internal/launcher/containerimage"
	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcher/tool"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Maker makes the disks of a machine's volumes.
type Maker struct {
	machine launcherapi.Machine
	remotes *remote.Disks
	path    func(volume string) string // of a copy
	note    func(volume string, change func(*launcherapi.Copy))
	images  *containerimage.Maker
	image   func(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) // makes the disk of a container image; tests replace it
}

// New returns a Maker of a machine's disks. It records in p the progress of its copies.
func New(m launcherapi.Machine, r *remote.Disks, p *progress.Copies, log *slog.Logger) *Maker {
	k := &Maker{machine: m, remotes: r, path: backing.CopyFile, note: p.Change, images: &containerimage.Maker{Machine: m, Log: log, Note: p.Change, Dial: r.Dialer("http")}}
	k.image = k.images.Disk
	return k
}

// copy makes the guest's own disk, whose content is at first the master's.
func (k *Maker) copy(ctx context.Context, v kubevirt.Volume, master backing.Disk) (backing.Disk, error) {
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
	// A launcher that was restarted in its pod starts a new guest, so what an earlier guest wrote is removed.
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
	b, err := k.made(v, size, mayHave)
	if c.Mode != kubevirt.CopyClone {
		b.Master = &master
	}
	return b, err
}

// whole makes an empty disk for a copy that has all of its master and comes along with its guest.
func (k *Maker) whole(ctx context.Context, v kubevirt.Volume, size int64) (backing.Disk, error) {
	c, path := v.Copied(), k.path(v.Name)
	if c == nil || size <= 0 {
		return backing.Disk{}, fmt.Errorf("volume %s: it is said to be a copy of %d bytes", v.Name, size)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return backing.Disk{}, err
	}
	if err := tool.Run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", path, fmt.Sprint(size)); err != nil {
		return backing.Disk{}, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	k.note(v.Name, func(n *launcherapi.Copy) {
		n.Mode, n.Total = c.Mode, size
		n.Complete()
	})
	return k.made(v, size, writable(c, size, k.machine.Rooms[v.Name]))
}

// opened describes a copy that the launcher which the guest comes from made in a claim that both have. QEMU writes to it there until the guest is
// here, so nothing is changed.
func (k *Maker) opened(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) {
	c, path := v.Copied(), k.path(v.Name)
	size, err := backing.VirtualSize(path)
	if err != nil {
		return backing.Disk{}, fmt.Errorf("volume %s: open the copy of the launcher that the guest comes from: %w", v.Name, err)
	}
	_, whole := k.machine.Whole[v.Name]
	k.note(v.Name, func(n *launcherapi.Copy) {
		n.Mode, n.Size, n.Total = c.Mode, size, size
		if whole {
			n.Complete()
		}
	})
	b := backing.Disk{Path: path, Format: "qcow2", Copied: true, CopyOnRead: c.Mode == kubevirt.CopyOnRead}
	if whole {
		return b, nil
	}
	master, err := k.master(ctx, v)
	if err != nil {
		return backing.Disk{}, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	b.Master, b.Orders = &master, master.Orders
	return b, nil
}

// made describes a copy that was made, and gives its file the room that it may take.
func (k *Maker) made(v kubevirt.Volume, size, mayHave int64) (backing.Disk, error) {
	k.note(v.Name, func(n *launcherapi.Copy) { n.Size = size })
	b := backing.Disk{Path: k.path(v.Name), Format: "qcow2", Copied: true, CopyOnRead: v.Copied().Mode == kubevirt.CopyOnRead}
	var err error
	b.Limit, err = k.limit(v.Name, launcherapi.CopyFile(mayHave))
	if err != nil || b.Limit == 0 {
		return b, err
	}
	return b, extend(b.Path, b.Limit)
}

// overlay makes an empty overlay over the master. QEMU is told its master and does not read it from the file.
func (k *Maker) overlay(ctx context.Context, volume string, master backing.Disk, node, path string) error {
	if err := k.program(ctx, volume, master, nil, "create", "-q", "-f", "qcow2", "-b", node, "-F", master.Format, path); err != nil {
		return err
	}
	size, err := backing.VirtualSize(path)
	k.note(volume, func(c *launcherapi.Copy) { c.Total = size })
	return err
}

// clone copies the whole master, many parts at once, without its zeroes. The master is not needed any more after that.
func (k *Maker) clone(ctx context.Context, volume string, master backing.Disk, node, path string) error {
	const whole = 100_00 // in hundredths of a percent
	say := func(n int64) { k.note(volume, func(c *launcherapi.Copy) { c.Done, c.Total = n, whole }) }
	say(0)
	err := k.program(ctx, volume, master, &Meter{Say: say}, "convert", "-p", "-W", "-m", "16", "-O", "qcow2", node, path)
	if err != nil {
		return err
	}
	if master.Remote != nil {
		k.remotes.Release(volume)
	}
	k.note(volume, (*launcherapi.Copy).Complete)
	return nil
}

// limit returns the length that a copy's file may reach if its content needs this many bytes; 0 if the copy has a claim of its own, whose size
// limits it and which can grow.
func (k *Maker) limit(volume string, needs int64) (int64, error) {
	if k.machine.Media[volume] == "" {
		return needs, nil
	}
	f, err := os.Open(k.path(volume))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	// A claim of its own is as large as was asked for, or larger if its class rounds up; the filesystem takes some of it.
	if own, _, err := diskspace.Own(f, needs+needs/2+128<<20); err != nil || own {
		return 0, err
	}
	return needs, nil
}

// writable returns how many bytes the guest may write. most bounds it for a disk whose size was not known when the machine was made, and is
// otherwise 0.
func writable(c *kubevirt.DiskCopy, size, most int64) int64 {
	switch {
	case c.Capacity != nil:
		return c.Capacity.Value()
	case most > 0:
		return min(size, most)
	}
	return size
}

// tooSmall is the error about a copy that cannot hold its whole master.
func tooSmall(c *kubevirt.DiskCopy, room, size int64) error {
	if c.Capacity == nil {
		return fmt.Errorf("copy.capacity is not said, which gives a copy %d bytes: one of mode %s needs as much room as its disk has, which is %d bytes", room, c.Mode, size)
	}
	return fmt.Errorf("copy.capacity is %d bytes: a copy of mode %s needs as much room as its disk has, which is %d bytes", room, c.Mode, size)
}

// program runs qemu-img on a master, with the master's login if it is a network disk. The output goes to said if that is not nil.
func (k *Maker) program(ctx context.Context, volume string, master backing.Disk, said io.Writer, args ...string) error {
	if master.Remote != nil {
		return k.remotes.QEMUImg(ctx, k.machine, volume, master.Remote, said, args...)
	}
	if err := tool.RunTo(exec.CommandContext(ctx, "qemu-img", args...), said); err != nil {
		return fmt.Errorf("qemu-img %s: %w", args[0], err)
	}
	return nil
}

// enlarge gives a new copy the size that the machine asks for, if it asks for one, and returns the size.
func enlarge(ctx context.Context, path string, asked *kubevirt.Quantity) (int64, error) {
	has, err := backing.VirtualSize(path)
	switch {
	case err != nil || asked == nil || asked.Value() == has:
		return has, err
	case asked.Value() < has:
		return 0, fmt.Errorf("copy.size is %s and the master has %d bytes: a copy cannot be smaller than its master", asked, has)
	}
	if err := tool.Run(ctx, "qemu-img", "resize", "-q", "-f", "qcow2", path, fmt.Sprint(asked.Value())); err != nil {
		return 0, err
	}
	return backing.VirtualSize(path)
}

// extend sets the file to its maximum length, as a hole that takes no space. QEMU is told not to write beyond it, so a guest whose
// copy is full is paused; a full medium would end the pod.
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

// alone makes the disk of a volume again, with layers of the machine's own, because the node's could not be used: for example, because another
// pod holds QEMU's lock on them.
func (k *Maker) alone(ctx context.Context, v kubevirt.Volume, was backing.Disk, why error) (backing.Disk, error) {
	was.CloseNodeFiles()
	k.images.Refused = "those of the node cannot be used: " + why.Error()
	return k.disk(ctx, v)
}

// WithOwnLayers makes those of the disks again that use layers of the node, with layers of the machine's own, and returns whether there are any.
// why is the error that libvirt had with the node's layers.
func (k *Maker) WithOwnLayers(ctx context.Context, disks map[string]backing.Disk, why error) (bool, error) {
	made := false
	for _, v := range k.machine.Spec.Volumes {
		if !disks[v.Name].UsesNodeFiles() {
			continue
		}
		b, err := k.alone(ctx, v, disks[v.Name], why)
		if err != nil {
			return false, err
		}
		disks[v.Name], made = b, true
	}
	return made, nil
}
