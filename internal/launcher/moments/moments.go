// Package moments holds the disks of a guest for backups, at most one moment at a time, as it is ordered to, and lets the worker of the backup read them
// over mutual TLS.
//
// It does not know how QEMU holds a moment (internal/launcher/backup does), who orders it, or where the data goes. What it holds is lost with its
// process, and with the guest.
package moments

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/launcher/backup"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Disk is a disk of the guest, and its device name in the domain.
type Disk struct {
	backup.Disk
	Target string
}

// Guest is the guest whose disks are held.
type Guest struct {
	QEMU backup.QEMU
	// Disks returns the disks of the guest as they are now, by volume.
	Disks func() (map[string]Disk, error)
	// Freeze and Thaw have the guest's agent freeze its filesystems and thaw them.
	Freeze, Thaw func() error
	// Still keeps the guest's disks from being added, removed, resized or sent until release is called. It returns false if that cannot be
	// had now.
	Still func() (release func(), ok bool)
	// Alone runs do while no one else stops the guest's processors or lets them go on.
	Alone func(do func() error) error
	// Dir is where the scratch of a moment is made.
	Dir string
	// Idle is how long a moment is held that is neither read nor asked for; 0: fifteen minutes.
	Idle time.Duration
	Log  *slog.Logger
}

// Keeper keeps the moment.
type Keeper struct {
	guest Guest
	mu    sync.Mutex
	now   *held
	// was is why the last moment that was given up without an order cannot be read any more, and broken the backup that it was held for.
	was, broken string
}

// held is a moment that is held.
type held struct {
	id      string
	moment  *backup.Moment
	door    *door
	said    launcherapi.BackupMoment
	dir     string
	release func()
	idle    *time.Timer
}

// New returns the keeper of a guest. What an earlier process left in the directory is removed.
func New(g Guest) *Keeper {
	_ = os.RemoveAll(filepath.Join(g.Dir, scratch))
	return &Keeper{guest: g}
}

const scratch = "backup"

// Do carries an order out. It may be repeated: a moment that is held for the backup is not taken again, but gets the keys of the last order.
func (k *Keeper) Do(ctx context.Context, o launcherapi.BackupOrder) (launcherapi.BackupMoment, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.ID == "" {
		return launcherapi.BackupMoment{}, errors.New("the order names no backup")
	}
	if o.End {
		return k.end(o)
	}
	switch {
	case k.broken == o.ID:
		return launcherapi.BackupMoment{Broken: k.was}, nil
	case k.now == nil:
	case k.now.id != o.ID:
		return launcherapi.BackupMoment{Busy: k.now.id}, nil
	default:
		if over := k.now.overrun(); over != "" {
			return launcherapi.BackupMoment{Broken: over}, nil
		}
		k.now.idle.Reset(k.idle())
		if err := k.now.door.use(o); err != nil {
			return launcherapi.BackupMoment{}, err
		}
		return k.now.said, nil
	}
	release, ok := k.guest.Still()
	if !ok {
		return launcherapi.BackupMoment{Later: "the guest moves, or its disks are being changed"}, nil
	}
	h, err := k.begin(ctx, o)
	if err != nil {
		release()
		return launcherapi.BackupMoment{}, err
	}
	h.release, k.now = release, h
	h.idle = time.AfterFunc(k.idle(), func() { k.forgotten(h) })
	k.guest.Log.Info("the disks are held for a backup", "backup", o.ID, "incremental", h.said.Incremental, "full", h.said.Full, "stood", h.moment.Stood.String())
	return h.said, nil
}

// begin holds the disks and opens the door to them.
func (k *Keeper) begin(ctx context.Context, o launcherapi.BackupOrder) (*held, error) {
	has, err := k.guest.Disks()
	if err != nil {
		return nil, err
	}
	h := &held{id: o.ID, dir: filepath.Join(k.guest.Dir, scratch)}
	order := backup.Order{Scratch: h.dir}
	if o.Tracker != "" {
		order.Checkpoint = backup.Checkpoint{Tracker: o.Tracker, Name: o.Checkpoint}
		if o.Since != "" {
			order.Since = backup.Checkpoint{Tracker: o.Tracker, Name: o.Since}
		}
	}
	for _, v := range o.Volumes {
		d, ok := has[v]
		if !ok {
			return nil, fmt.Errorf("the guest has no disk %s", v)
		}
		order.Disks = append(order.Disks, d.Disk)
		h.said.Disks = append(h.said.Disks, launcherapi.BackupDisk{Volume: v, Target: d.Target, Size: d.Size})
	}
	if len(order.Disks) == 0 {
		return nil, errors.New("no disk of the machine is in a claim of its own")
	}
	if o.Quiesce {
		order.Freeze, order.Thaw = k.guest.Freeze, k.guest.Thaw
	}
	if err := os.RemoveAll(h.dir); err != nil {
		return nil, fmt.Errorf("remove an earlier scratch: %w", err)
	}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the scratch: %w", err)
	}
	if order.Room, err = room(h.dir, o.Room, order.Disks); err != nil {
		return nil, err
	}
	err = k.guest.Alone(func() error {
		h.moment, err = backup.Begin(ctx, k.guest.QEMU, order)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(h.dir))
	}
	if h.door, err = open(h.moment.Socket, o); err != nil {
		return nil, errors.Join(err, h.moment.End(false), os.RemoveAll(h.dir))
	}
	h.tell(o)
	return h, nil
}

// tell writes down what is answered about the moment.
func (h *held) tell(o launcherapi.BackupOrder) {
	m, said := h.moment, &h.said
	said.Moment, said.Time, said.Port = rand.Text(), m.Time.UTC(), h.door.port()
	said.Incremental, said.Full = m.Incremental, m.Full
	said.Quiesced = o.Quiesce && m.Quiesced == nil
	if o.Quiesce && m.Quiesced != nil {
		said.Unquiesced = m.Quiesced.Error()
	}
}

// least is the least room for what the guest overwrites of a disk.
const least = 8 << 20

// room is how much of each disk may be kept in dir: half of what is free there or may be used, so that a guest that writes a lot does not fill its
// node, and never more than the disk.
func room(dir string, most int64, disks []backup.Disk) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("look for room on the node: %w", err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	if most > 0 {
		free = min(free, most)
	}
	each, largest := free/2/int64(len(disks)), int64(0)
	for _, d := range disks {
		largest = max(largest, d.Size)
	}
	each = min(each, launcherapi.CopyFile(largest))
	if each < least {
		return 0, fmt.Errorf("the node has no room for what the guest overwrites while its disks are read: %d bytes are free, %d are needed", free, 2*least*len(disks))
	}
	return each, nil
}

// overrun says why the moment cannot be read any more; empty: it can.
func (h *held) overrun() string {
	over := h.moment.Overrun()
	if len(over) == 0 {
		return ""
	}
	return fmt.Sprintf("while the disks were read, the guest overwrote more of disk %s than the node has room for; back it up when the guest writes less, "+
		"or free space on the node", strings.Join(over, " and "))
}

// end gives the moment of a backup up.
func (k *Keeper) end(o launcherapi.BackupOrder) (launcherapi.BackupMoment, error) {
	if k.broken == o.ID {
		return launcherapi.BackupMoment{Broken: k.was}, nil
	}
	if k.now == nil || k.now.id != o.ID {
		return launcherapi.BackupMoment{}, nil // it was ended before, or never begun
	}
	said := launcherapi.BackupMoment{Broken: k.now.overrun()}
	return said, k.drop(o.Complete)
}

// drop ends what is held.
func (k *Keeper) drop(complete bool) error {
	h := k.now
	h.idle.Stop()
	h.door.close()
	if err := h.moment.End(complete); err != nil {
		return fmt.Errorf("give the disks back to the guest: %w", err)
	}
	k.now = nil
	h.release()
	k.guest.Log.Info("the disks are no longer held for a backup", "backup", h.id, "complete", complete)
	return os.RemoveAll(h.dir)
}

func (k *Keeper) idle() time.Duration { return cmp.Or(k.guest.Idle, 15*time.Minute) }

// forgotten gives up a moment that nobody reads: what ordered it may be gone, and its end with it.
func (k *Keeper) forgotten(h *held) {
	k.mu.Lock()
	mine, reads := k.now == h, h.door.reads.Load() > 0
	k.mu.Unlock()
	switch {
	case mine && reads:
		h.idle.Reset(k.idle())
	case mine:
		k.GiveWay(fmt.Sprintf("its disks were not read for %s", k.idle()))
	}
}

// GiveWay gives up what is held, because of something that cannot wait for a backup.
func (k *Keeper) GiveWay(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil {
		return
	}
	k.broken, k.was = k.now.id, why
	if err := k.drop(false); err != nil {
		k.guest.Log.Error("a backup does not end", "error", err.Error())
	}
}

// Holds reports whether a moment is held.
func (k *Keeper) Holds() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now != nil
}
