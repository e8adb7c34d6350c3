// Package sequential takes an image apart that comes as a stream: what it knows the place of goes to the disk at once, what
// it does not is parked on the target, and at the end, when every table has been seen, whatever is still parked is
// placed by the same code that reads files at random. It is the same for every format; what a table means is the
// format's business, where bytes are parked the engine's.
//
// A sound image that shares bytes between parts of the disk, or whose tables come long after compressed clusters so
// small that several share a sector, cannot be taken apart this way. It is refused at the end, never mistaken.
package sequential

import (
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Plan describes the order of a format's file.
type Plan interface {
	// Head is given the beginning of the file, MinHead bytes at first or, with whole set, all there are. It says how many
	// it needs to see at once to know the size of the disk, and is called again with that many if it is more. The head
	// is kept for Open, and nothing in it is taken for data before that.
	Head(head []byte, whole bool) (need int64, err error)
	// Shape says what is known once Head has seen enough.
	Shape() extent.Shape
	// Tables asks for the first tables.
	Tables(b *Book)
	// Table takes the next piece of a region, which lies at bytes behind r.Off. Pieces are multiples of 16 bytes long, except the last one.
	Table(b *Book, r Region, at int64, p []byte) error
	// Open opens the whole file.
	Open(f extent.File) (extent.Image, error)
}

// MinHead and MaxHead are the shortest and the longest head: Begin must come before anything is parked, so it is in
// memory until then.
const (
	MinHead = 64 << 10
	MaxHead = 8 << 20
)

// sector is the unit that coded extents are rounded up to, so two of them may share one.
const sector = 512

// Decoder takes a stream apart. Its memory is bounded: book, parks, and bytes that wait for the rest of an extent.
type Decoder struct {
	plan  Plan
	out   extent.Output
	book  *Book // its pos is the stream's: everything before it has been put, parked or dropped
	parks parks
	tails tails
	need  int64  // of the head
	begun bool   // the head is understood
	wait  []byte // from pos on: too few to continue with
	flood bool   // everything is parked: there are too many runs
	runs  int    // how many are too many
	put   tally
}

// New makes a decoder for a stream that begins at its first byte.
func New(plan Plan, out extent.Output) *Decoder {
	return &Decoder{plan: plan, out: out, book: newBook(), parks: parks{out: out}, need: MinHead, runs: maxRuns}
}

// Offset returns where the stream has to continue after State: bytes before it are never needed again.
func (d *Decoder) Offset() int64 { return d.book.pos }

// Parked returns how many bytes were parked when State was taken. What was parked later is parked again.
func (d *Decoder) Parked() int64 { return d.parks.n }

// Write takes the next bytes of the stream.
func (d *Decoder) Write(p []byte) (int, error) {
	if len(d.wait) == 0 {
		n, err := d.take(p, false)
		if err != nil {
			return 0, err
		}
		d.wait = append(d.wait, p[n:]...)
		return len(p), nil
	}
	d.wait = append(d.wait, p...)
	n, err := d.take(d.wait, false)
	if err != nil {
		return 0, err
	}
	if n > 0 { // else it stays where it is: a long wait must not be copied with every chunk
		d.wait = append(d.wait[:0], d.wait[n:]...)
	}
	return len(p), nil
}

// take deals with as much of data, which begins at pos, as can be dealt with.
func (d *Decoder) take(data []byte, whole bool) (int, error) {
	start := d.book.pos
	if !d.begun {
		if ok, err := d.head(data, whole); err != nil || !ok {
			return 0, err
		}
	}
	for {
		done := d.book.pos - start
		if done == int64(len(data)) {
			return len(data), nil
		}
		if more, err := d.step(data[done:]); err != nil || more {
			return int(done), err
		}
	}
}

// head waits for the head, begins the disk and parks the head, which is where formats look first at the end.
func (d *Decoder) head(data []byte, whole bool) (bool, error) {
	if int64(len(data)) < d.need && !whole {
		return false, nil
	}
	need, err := d.plan.Head(data[:min(int64(len(data)), d.need)], whole)
	if err != nil {
		return false, err
	}
	if need > MaxHead {
		return false, task.Errorf(task.UnsupportedImage, "the size of the disk is only known after %d bytes of the stream, at most %d are "+
			"possible; put the image where it can be read at random", need, int64(MaxHead))
	}
	if more := need > d.need; more && need <= int64(len(data)) {
		d.need = need
		return d.head(data, whole)
	}
	if d.need = need; need > int64(len(data)) {
		if whole {
			return false, task.Truncated("image header", 0, need, int64(len(data)))
		}
		return false, nil
	}
	d.begun, d.book.shape = true, d.plan.Shape()
	if err := d.out.Begin(d.book.shape.Disk); err != nil {
		return false, err
	}
	if err := d.keep(data[:need]); err != nil {
		return false, err
	}
	d.plan.Tables(d.book)
	return true, nil
}

// step deals with the beginning of p, which lies at pos, and moves pos on. It reports whether p is too short for that.
func (d *Decoder) step(p []byte) (more bool, err error) {
	b := d.book
	if d.flood {
		return false, d.keep(p)
	}
	if err := d.behind(); err != nil {
		return false, err
	}
	b.passed()
	next := b.pos + int64(len(p))
	if b.wants.len() > 0 {
		at := b.wants.top().next()
		if at == b.pos {
			return d.table(p)
		}
		next = min(next, at)
	}
	if b.places.len() > 0 {
		e := b.places.top()
		switch {
		case e.host == b.pos && e.n < 0:
			return d.coded(p)
		case e.host == b.pos:
			return false, d.plain(p[:next-b.pos])
		}
		next = min(next, e.host)
	}
	p = p[:next-b.pos]
	if b.complete() {
		b.pos = next
		return false, nil
	}
	return false, d.keep(p)
}

// keep parks p.
func (d *Decoder) keep(p []byte) error {
	if err := d.parks.add(p, d.book.pos); err != nil {
		return err
	}
	if len(d.parks.runs) >= d.runs && !d.flood {
		d.flood = true
		d.book.forget()
	}
	d.book.pos += int64(len(p))
	return nil
}

// behind hands over what was wanted when it had already come: a table that lies before the one that names it.
func (d *Decoder) behind() error {
	for d.book.wants.len() > 0 && d.book.wants.top().next() < d.book.pos {
		w := d.book.wants.pop()
		n := min(w.Len-w.at, d.book.pos-w.next(), extent.TablePiece)
		if w.at+n < w.Len {
			n &^= 15
		}
		if _, parked, _ := d.parks.find(w.next()); n == 0 || parked < n {
			d.book.lost = true // it overlaps something else, which only the end can sort out
			continue
		}
		p := make([]byte, n)
		if _, err := d.parks.ReadAt(p, w.next()); err != nil {
			return err
		}
		if err := d.piece(w, p); err != nil {
			return err
		}
	}
	return nil
}

// piece hands a piece of a table to the plan and wants the rest.
func (d *Decoder) piece(w want, p []byte) error {
	if err := d.plan.Table(d.book, w.Region, w.at, p); err != nil {
		return err
	}
	if err := d.lateComers(); err != nil {
		return err
	}
	if w.at += int64(len(p)); w.at < w.Len && !d.flood {
		d.book.wants.push(w) // there is room: it has just been popped
	}
	return nil
}

// table deals with the piece of a table that p begins with.
func (d *Decoder) table(p []byte) (more bool, err error) {
	w := d.book.wants.top()
	n := min(w.Len-w.at, extent.TablePiece)
	if n > int64(len(p)) {
		return true, nil
	}
	d.book.wants.pop()
	p = p[:n]
	if w.Passing {
		d.book.pos += n
	} else if err := d.keep(p); err != nil {
		return false, err
	}
	return false, d.piece(w, p)
}

// plain puts the beginning of p, for every plain place that begins here.
func (d *Decoder) plain(p []byte) error {
	b, n := d.book, int64(len(p))
	here := b.here()
	for _, e := range here {
		n = min(n, e.n)
	}
	if b.places.len() > 0 && b.places.top().host > b.pos {
		n = min(n, b.places.top().host-b.pos)
	}
	for _, e := range here {
		if err := d.putOne(extent.Extent{Host: b.pos, Stored: n, Guest: e.guest, Size: n}, p[:n]); err != nil {
			return err
		}
		if e.n > n {
			b.places.push(place{b.pos + n, e.guest + n, e.n - n})
		}
	}
	b.pos += n
	return nil
}

// coded puts the coded extent p begins with. Its last sector may be shared with an extent that is not known yet, so it is skipped
// only if the next known extent begins in it. The first byte is always skipped: the end of the run tells by it which extents have
// been put.
func (d *Decoder) coded(p []byte) (more bool, err error) {
	b := d.book
	e := b.places.pop()
	stored := -e.n
	if gap := b.gap(e.host); b.shape.Loose && gap > 0 {
		stored = min(stored, gap)
	}
	if stored > int64(len(p)) {
		b.places.push(e)
		return true, nil
	}
	s := b.shape
	x := extent.Extent{Host: e.host, Stored: stored, Guest: e.guest, Size: min(s.Unit, s.Disk-e.guest), Coding: s.Coding}
	if err := d.putOne(x, p[:stored]); err != nil {
		return false, err
	}
	end := (e.host + stored + sector - 1) &^ (sector - 1)
	next := e.host + 1
	if !b.shape.Loose {
		next = max((e.host+stored-1)&^(sector-1), next)
	}
	if ahead, ok := b.ahead(); ok && ahead <= end && !b.lost {
		if ahead > next && !b.shape.Loose {
			d.tails.add(next, p[next-b.pos:min(ahead-b.pos, int64(len(p)))], b.pos-b.memory())
		}
		next = ahead
	}
	b.pos = min(next, b.pos+int64(len(p)))
	return false, nil
}

func (d *Decoder) putOne(e extent.Extent, p []byte) error {
	if err := d.out.Put(e, p); err != nil {
		return err
	}
	d.put.add(e)
	return nil
}
