package earlyboot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/transfer/format"
)

// Guest is the disk as its guest sees it: whole. It is an nbd.Writer.
type Guest struct{ *guest }

// guest keeps the sink's methods, which have the same names, from view.
type guest struct{ d *Disk }

// Guest returns the other side of the disk.
func (d *Disk) Guest() Guest { return Guest{&guest{d}} }

// Size implements nbd.Disk.
func (g *guest) Size() int64 { return g.d.size }

// ReadAt implements nbd.Disk. What is not there yet is fetched.
func (g *guest) ReadAt(p []byte, off int64) (int, error) {
	d := g.d
	if !d.whole.Load() {
		end := off + int64(len(p))
		if err := d.first(d.need, off, end); err != nil {
			return 0, err
		}
		d.readAhead(end, d.streams.read(off, end))
	}
	return d.file.ReadAt(p, off)
}

// WriteAt implements nbd.Writer.
func (g *guest) WriteAt(p []byte, off int64) (int, error) {
	err := g.d.change(off, off+int64(len(p)), func() error {
		_, err := g.d.file.WriteAt(p, off)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Zero implements nbd.Writer.
func (g *guest) Zero(off, n int64) error {
	return g.d.change(off, off+n, func() error { return g.d.zero(off, n) })
}

// Flush implements nbd.Writer.
func (g *guest) Flush() error {
	sync := func() error {
		if err := unix.Fdatasync(int(g.d.file.Fd())); err != nil {
			return fmt.Errorf("make the guest's writes durable: %w", err)
		}
		return nil
	}
	if g.d.whole.Load() {
		return sync()
	}
	return g.d.journal.flush(sync)
}

// around extends [from, to) to whole clusters.
func (d *Disk) around(from, to int64) (int64, int64) {
	return from / cluster * cluster, min((to+cluster-1)/cluster*cluster, d.size)
}

// change has the guest write to [off, end). What of its first and last cluster it does not write is the image's, and is
// brought before.
func (d *Disk) change(off, end int64, write func() error) error {
	if off == end {
		return nil
	}
	from, to := d.around(off, end)
	if d.whole.Load() || d.all(d.noted, from, to) {
		return write()
	}
	defer d.ranges.hold(from, to)()
	if off > from {
		if err := d.first(d.bring, from, min(from+cluster, to)); err != nil {
			return err
		}
	}
	if last := (to - 1) / cluster * cluster; end < to {
		if err := d.first(d.bring, last, to); err != nil {
			return err
		}
	}
	if err := write(); err != nil {
		return err
	}
	d.set(d.present, from, to)
	if d.whole.Load() {
		return nil
	}
	if err := d.journal.note(from/cluster, (to-from+cluster-1)/cluster); err != nil {
		return err
	}
	d.set(d.noted, from, to)
	return nil
}

// zero punches a hole, and writes zeroes where the filesystem cannot.
func (d *Disk) zero(off, n int64) error {
	err := unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	for errors.Is(err, syscall.EINTR) {
		err = unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	}
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		return err
	}
	zeroes := make([]byte, min(n, longestFetch))
	for end := off + n; off < end; off += int64(len(zeroes)) {
		if _, err := d.file.WriteAt(zeroes[:min(int64(len(zeroes)), end-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// first makes [off, end) present for a guest that waits for it, so the fill lets it go first; also where it waits for what is being read ahead.
func (d *Disk) first(get func(off, end int64) error, off, end int64) error {
	if from, to := d.around(off, end); d.all(d.present, from, to) {
		return nil
	}
	d.gate.enter()
	defer d.gate.leave()
	return get(off, end)
}

// need makes [off, end) present.
func (d *Disk) need(off, end int64) error {
	from, to := d.around(off, end)
	for at := from; at < to; at += longestFetch {
		stretch := min(at+longestFetch, to)
		if d.all(d.present, at, stretch) {
			continue
		}
		release := d.ranges.hold(at, stretch)
		err := d.bring(at, stretch)
		release()
		if err != nil {
			return err
		}
	}
	return nil
}

// readAhead fetches the bytes after end, if there is time for that. No request waits for it, so the fill continues meanwhile.
func (d *Disk) readAhead(end, n int64) {
	from, to := d.around(end, min(end+n, d.size))
	if n == 0 || from >= to || d.all(d.present, from, to) {
		return
	}
	select {
	case d.slots <- struct{}{}:
	default:
		return
	}
	d.ahead.Go(func() {
		defer func() { <-d.slots }()
		_ = d.need(from, to) // the caller for it is told
	})
}

// there reports whether the cluster that begins at is present, or the fill has been there since.
func (d *Disk) there(at int64) bool {
	if d.isSet(d.present, at/cluster) {
		return true
	}
	end := min(at+cluster, d.size)
	if !d.source.Places.before(at, end, d.reached.Load()) {
		return false
	}
	d.set(d.present, at, end)
	return true
}

// bring makes the clusters of [from, to) present. The caller holds them.
func (d *Disk) bring(from, to int64) error {
	for at := from; at < to; {
		if d.there(at) {
			at += cluster
			continue
		}
		end := at + cluster
		for end < to && end-at < longestFetch && !d.there(end) {
			end += cluster
		}
		end = min(end, to)
		if err := d.fetch(at, end); err != nil {
			return err
		}
		d.set(d.present, at, end)
		at = end
	}
	return nil
}

// gapMost is the longest gap in the file that is read through instead of asking twice.
const gapMost = 128 << 10

// fetch gets [from, to) of the disk from the image.
func (d *Disk) fetch(from, to int64) error {
	select {
	case d.some <- struct{}{}:
		defer func() { <-d.some }()
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
	es := d.source.Places.In(from, to)
	slices.SortFunc(es, func(a, b format.Extent) int { return cmp.Compare(a.Host, b.Host) })
	out := make([]byte, to-from)
	for len(es) > 0 {
		n, end := 1, es[0].Host+es[0].Stored
		for n < len(es) && es[n].Host-end <= gapMost && es[n].Host+es[n].Stored-es[0].Host <= 2*longestFetch {
			end = max(end, es[n].Host+es[n].Stored)
			n++
		}
		stored, err := d.source.Fetch(d.ctx, es[0].Host, end)
		if err != nil {
			return err
		}
		d.Demanded.Add(int64(len(stored)))
		for _, e := range es[:n] {
			if err := d.place(out, from, e, stored[e.Host-es[0].Host:]); err != nil {
				return err
			}
		}
		es = es[n:]
	}
	_, err := d.Target.WriteAt(out, from) // the fill's own way: what is zero stays unwritten
	return err
}

// place puts an extent where it belongs in out, which is the disk from from on.
func (d *Disk) place(out []byte, from int64, e format.Extent, stored []byte) error {
	p := stored[:min(e.Stored, int64(len(stored)))]
	if e.Coding != format.Plain {
		var err error
		if p, err = d.source.Expand(e, p); err != nil {
			return err
		}
	}
	at := e.Guest - from
	if at < 0 {
		p, at = p[-at:], 0
	}
	copy(out[at:], p)
	return nil
}
