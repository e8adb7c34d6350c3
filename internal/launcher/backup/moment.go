package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Order says which moment is wanted.
type Order struct {
	// Checkpoint is recorded from this moment on. If its Name is empty nothing is recorded.
	Checkpoint Checkpoint
	// Since is the checkpoint of the same tracker that the backup is relative to. If its Name is empty, all data is wanted.
	Since Checkpoint
	Disks []Disk
	// Scratch is an empty directory. What the guest overwrites while a moment is read is kept there.
	Scratch string
	// Room is how much of each disk may be kept there, in bytes; 0: as much as fits.
	Room int64
	// Freeze makes the guest's filesystems consistent, and Thaw lets them be written to again. Either may be nil.
	Freeze, Thaw func() error
}

// Moment is the state of a guest's disks at one time, until End.
type Moment struct {
	order Order
	q     QEMU
	// Incremental says that the bitmaps of the exports have what changed since the order's checkpoint.
	Incremental bool
	// Full says why not, if a checkpoint was named.
	Full string
	// Time is when it was, and Stood is how long the guest did not run for it.
	Time  time.Time
	Stood time.Duration
	// Quiesced is nil if Freeze succeeded.
	Quiesced error
	// Socket is where the disks are served, as exports with the names of the volumes.
	Socket string
}

// Bitmap is the metadata context of the exports in which dirty extents have changed, if the moment is incremental.
const Bitmap = "qemu:dirty-bitmap:" + frozen

// frozen is the name of the copy of a checkpoint's bitmap as it was at the moment.
const frozen = "berth-moment"

// Names of block nodes. QEMU allows 31 characters, so they are numbered.
func (m *Moment) node(i int) string    { return "moment-" + strconv.Itoa(i) }
func (m *Moment) filter(i int) string  { return m.node(i) + "-filter" }
func (m *Moment) scratch(i int) string { return m.node(i) + "-scratch" }

// Begin holds the moment: it returns when the guest runs again. From then on, QEMU copies what the guest is about to overwrite into the
// scratch directory. If that runs full, the guest is not disturbed and reading the moment fails.
//
// A moment that cannot be had leaves nothing behind.
func Begin(ctx context.Context, q QEMU, o Order) (*Moment, error) {
	m := &Moment{order: o, q: q, Socket: filepath.Join(o.Scratch, "moment.sock")}
	has, err := bitmaps(q)
	if err != nil {
		return nil, err
	}
	if o.Since.Name != "" {
		m.Full = missing(has, o.Since, o.Disks)
		m.Incremental = m.Full == ""
	}
	err = m.prepare(ctx)
	if err == nil {
		err = m.hold()
	}
	if err == nil {
		err = m.serve()
	}
	if err != nil {
		return nil, errors.Join(err, m.End(false))
	}
	return m, nil
}

// prepare does what can be done while the guest runs.
func (m *Moment) prepare(ctx context.Context) error {
	for i, d := range m.order.Disks {
		path := filepath.Join(m.order.Scratch, m.scratch(i))
		out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", path, strconv.FormatInt(d.Size, 10)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("create the scratch of disk %s: %w: %.300s", d.Volume, err, out)
		}
		file := args{"driver": "file", "filename": path}
		if room := m.order.Room &^ (granularity - 1); room > 0 {
			if err := os.Truncate(path, room); err != nil {
				return fmt.Errorf("limit the scratch of disk %s: %w", d.Volume, err)
			}
			file = args{"driver": "raw", "size": room, "file": file} // QEMU fails a write behind the end with ENOSPC
		}
		_, err = m.q.Run("blockdev-add", args{"driver": "qcow2", "node-name": m.scratch(i), "discard": "unmap", "file": file})
		if err != nil {
			return fmt.Errorf("open the scratch of disk %s: %w", d.Volume, err)
		}
	}
	return nil
}

// hold stops the guest for the moment.
func (m *Moment) hold() error {
	if m.order.Freeze != nil {
		if m.Quiesced = m.order.Freeze(); m.Quiesced == nil && m.order.Thaw != nil {
			defer func() { _ = m.order.Thaw() }() // if it fails, the launcher tries it again
		}
	}
	runs, err := running(m.q)
	if err != nil {
		return err
	}
	m.Time = time.Now()
	if runs {
		if _, err := m.q.Run("stop", nil); err != nil {
			return err
		}
	}
	err = m.insert()
	if runs {
		_, failed := m.q.Run("cont", nil)
		err = errors.Join(err, failed)
	}
	m.Stood = time.Since(m.Time)
	return err
}

func running(q QEMU) (bool, error) {
	answer, err := q.Run("query-status", nil)
	if err != nil {
		return false, err
	}
	var status struct {
		Running bool `json:"running"`
	}
	if err := json.Unmarshal(answer, &status); err != nil {
		return false, fmt.Errorf("read QEMU's status: %w", err)
	}
	return status.Running, nil
}

// insert begins the bitmaps of all disks at once and puts a filter between each disk and the guest.
func (m *Moment) insert() error {
	var actions []args
	action := func(kind string, data args) { actions = append(actions, args{"type": kind, "data": data}) }
	for _, d := range m.order.Disks {
		if m.order.Checkpoint.Name != "" {
			action("block-dirty-bitmap-add", args{"node": d.Node, "name": m.order.Checkpoint.bitmap(), "granularity": granularity})
		}
		if m.Incremental {
			action("block-dirty-bitmap-add", args{"node": d.Node, "name": frozen, "granularity": granularity, "disabled": true})
			action("block-dirty-bitmap-merge", args{"node": d.Node, "target": frozen, "bitmaps": []string{m.order.Since.bitmap()}})
		}
	}
	if len(actions) > 0 {
		if _, err := m.q.Run("transaction", args{"actions": actions}); err != nil {
			return fmt.Errorf("begin to record changes: %w", err)
		}
	}
	for i, d := range m.order.Disks {
		_, err := m.q.Run("blockdev-add", args{"driver": "copy-before-write", "node-name": m.filter(i), "file": d.Node, "target": m.scratch(i),
			"on-cbw-error": "break-snapshot", "discard": "unmap"})
		if err == nil {
			_, err = m.q.Run("qom-set", args{"path": d.Device, "property": "drive", "value": m.filter(i)})
		}
		if err == nil {
			_, err = m.q.Run("blockdev-add", args{"driver": "snapshot-access", "node-name": m.node(i), "file": m.filter(i)})
		}
		if err != nil {
			return fmt.Errorf("hold disk %s: %w", d.Volume, err)
		}
	}
	return nil
}

// serve exports the disks, to be read.
func (m *Moment) serve() error {
	if _, err := m.q.Run("nbd-server-start", args{"addr": args{"type": "unix", "data": args{"path": m.Socket}}}); err != nil {
		return fmt.Errorf("serve the disks: %w", err)
	}
	for i, d := range m.order.Disks {
		export := args{"type": "nbd", "id": m.node(i), "node-name": m.node(i), "name": d.Volume}
		if m.Incremental {
			export["bitmaps"] = []args{{"node": d.Node, "name": frozen}}
		}
		if _, err := m.q.Run("block-export-add", export); err != nil {
			return fmt.Errorf("serve disk %s: %w", d.Volume, err)
		}
	}
	return nil
}

// full is how much of a scratch may be unused when a write does not fit any more: tables are allocated with the data.
const full = 1 << 20

// Overrun returns the volumes of which the guest overwrote more than there was room for: their disks cannot be read as they were.
func (m *Moment) Overrun() []string {
	var out []string
	for i, d := range m.order.Disks {
		info, err := os.Stat(filepath.Join(m.order.Scratch, m.scratch(i)))
		if err != nil || m.order.Room == 0 {
			continue
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Blocks*512 > m.order.Room-full {
			out = append(out, d.Volume)
		}
	}
	return out
}

// exportsGone is how long QEMU may take to close exports whose clients were disconnected.
const exportsGone = 30 * time.Second

// End gives the moment up and removes everything that was made for it. If the backup is complete, changes are recorded since its checkpoint
// alone; otherwise since the checkpoint before, as if the moment had not been. It does as much as it can, may be repeated, and returns an
// error if something is left.
func (m *Moment) End(complete bool) error {
	errs := []error{m.withdraw()}
	for i, d := range m.order.Disks {
		errs = append(errs, m.remove(m.node(i)))
		if err := m.unfilter(i, d); err != nil {
			errs = append(errs, fmt.Errorf("give the guest disk %s without the filter: %w", d.Volume, err))
			continue // the filter is in use
		}
		errs = append(errs, m.remove(m.filter(i)), m.remove(m.scratch(i)))
	}
	errs = append(errs, removeWhere(m.q, func(name string) bool { return name == frozen }))
	if c := m.order.Checkpoint; c.Name != "" {
		if complete {
			errs = append(errs, Keep(m.q, c))
		} else {
			errs = append(errs, Drop(m.q, c))
		}
	}
	for i := range m.order.Disks {
		if err := os.Remove(filepath.Join(m.order.Scratch, m.scratch(i))); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// unfilter gives the guest's device the disk itself. QEMU 7.2 aborts if the device has the disk already.
func (m *Moment) unfilter(i int, d Disk) error {
	answer, err := m.q.Run("qom-get", args{"path": d.Device, "property": "drive"})
	if err != nil || string(answer) != strconv.Quote(m.filter(i)) {
		return nil //nolint:nilerr // a device that is gone has no filter
	}
	_, err = m.q.Run("qom-set", args{"path": d.Device, "property": "drive", "value": d.Node})
	return err
}

// withdraw ends the exports and disconnects their clients.
func (m *Moment) withdraw() error {
	for i := range m.order.Disks {
		_, _ = m.q.Run("block-export-del", args{"id": m.node(i), "mode": "hard"}) // one that is not there is fine; others are seen below
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		answer, err := m.q.Run("query-block-exports", nil)
		if err != nil {
			return err
		}
		var left []struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(answer, &left); err != nil {
			return fmt.Errorf("read QEMU's exports: %w", err)
		}
		if len(left) == 0 {
			break
		}
		if time.Since(began) > exportsGone {
			return fmt.Errorf("QEMU still serves %s", left[0].ID)
		}
	}
	_, _ = m.q.Run("nbd-server-stop", nil) // an error says that it does not run
	return nil
}

// remove removes a block node. One that is not there is fine.
func (m *Moment) remove(node string) error {
	has, err := bitmaps(m.q)
	if err != nil {
		return err
	}
	if _, ok := has[node]; !ok {
		return nil
	}
	if _, err := m.q.Run("blockdev-del", args{"node-name": node}); err != nil {
		return fmt.Errorf("remove block node %s: %w", node, err)
	}
	return nil
}
