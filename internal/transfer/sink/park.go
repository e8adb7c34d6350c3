package sink

import (
	"errors"
	"fmt"
)

// Park implements Parking: on the part of the device that is not written yet.
func (d *device) Park(p []byte) (int64, error) {
	d.parking.Lock()
	defer d.parking.Unlock()
	l := d.lot
	if l == nil {
		return 0, errors.New("park before Begin")
	}
	at := l.end
	for len(p) > 0 {
		if l.end%l.place == 0 { // a new piece
			place, err := l.find(int32(len(l.where)))
			if err != nil {
				return 0, err
			}
			l.where = append(l.where, place)
			l.last = make([]byte, 0, l.place)
		}
		n := min(len(p), int(l.place)-len(l.last))
		l.last = append(l.last, p[:n]...)
		l.end += int64(n)
		p = p[n:]
		if len(l.last) == int(l.place) {
			if err := d.writeLast(); err != nil {
				return 0, err
			}
		}
	}
	return at, nil
}

// writeLast writes the piece being filled to its place.
func (d *device) writeLast() error {
	l := d.lot
	if len(l.last) == 0 {
		return nil
	}
	place := l.where[len(l.where)-1]
	l.stale.set(place)
	return d.w.write(l.last, int64(place)*l.place)
}

// Parked implements Parking.
func (d *device) Parked(p []byte, at int64) error {
	d.parking.Lock()
	defer d.parking.Unlock()
	l := d.lot
	if l == nil || at < 0 || at+int64(len(p)) > l.end {
		return fmt.Errorf("read %d parked bytes at %d, where none are", len(p), at)
	}
	for len(p) > 0 {
		piece, in := at/l.place, at%l.place
		n := min(int64(len(p)), l.place-in)
		switch place := l.where[piece]; {
		case place == nowhere:
			return fmt.Errorf("read %d parked bytes at %d, which were forgotten", n, at)
		case piece == int64(len(l.where)-1) && len(l.last) > 0:
			copy(p[:n], l.last[in:])
		default:
			if _, err := d.w.file.ReadAt(p[:n], int64(place)*l.place+in); err != nil {
				return Failed(fmt.Errorf("read parked bytes back: %w", err))
			}
		}
		p, at = p[n:], at+n
	}
	return nil
}

// Forget implements Parking. From then on there is no note: one would speak of bytes that may be overwritten.
func (d *device) Forget(at, n int64) {
	d.parking.Lock()
	defer d.parking.Unlock()
	d.ending = true
	if d.outdate() != nil {
		return // the space is not used then; the next write reports the device's failure
	}
	for l := d.lot; l != nil && n > 0 && at < l.end; {
		m := min(n, l.place-at%l.place)
		l.forget(int32(at/l.place), m)
		at, n = at+m, n-m
	}
}

// Unpark implements Parking.
func (d *device) Unpark(n int64) error {
	d.parking.Lock()
	defer d.parking.Unlock()
	l := d.lot
	if l == nil || n > l.end {
		if n == 0 {
			return nil
		}
		return fmt.Errorf("%d bytes should be parked on the device", n)
	}
	keep := int((n + l.place - 1) / l.place)
	for _, place := range l.where[keep:] {
		if place != nowhere {
			delete(l.what, place)
		}
	}
	l.where, l.end = l.where[:keep], n
	in := n % l.place
	if in == 0 {
		return nil
	}
	last := make([]byte, in, l.place)
	if place := l.where[keep-1]; place != nowhere {
		if _, err := d.w.file.ReadAt(last, int64(place)*l.place); err != nil {
			return Failed(fmt.Errorf("read parked bytes back: %w", err))
		}
	}
	l.last = last
	return nil
}

// vacate ensures that no bytes are parked in a range that the disk is about to write, now and later.
func (d *device) vacate(off, n int64) error {
	d.parking.Lock()
	defer d.parking.Unlock()
	l := d.lot
	if l == nil || n == 0 {
		return nil
	}
	for p := off / l.place; p < int64(l.n) && p*l.place < off+n; p++ {
		place := int32(p)
		if l.disk.has(place) {
			continue
		}
		l.disk.set(place)
		if piece, parked := l.what[place]; parked {
			if err := d.move(piece, place); err != nil {
				return err
			}
		}
		if l.stale.has(place) { // the disk need not write all of it
			if err := d.zero(int64(place)*l.place, l.place); err != nil {
				return err
			}
			l.stale.drop(place)
		}
	}
	return nil
}

// move gives a piece another place. A note that knows the old one must not be found any more.
func (d *device) move(piece, from int32) error {
	l := d.lot
	if err := d.outdate(); err != nil {
		return err
	}
	to, err := l.find(piece)
	if err != nil {
		return err
	}
	delete(l.what, from)
	l.where[piece] = to
	if int(piece) == len(l.where)-1 && len(l.last) > 0 {
		return d.writeLast()
	}
	buf := make([]byte, l.place)
	if _, err := d.w.file.ReadAt(buf, int64(from)*l.place); err != nil {
		return Failed(fmt.Errorf("move parked bytes: %w", err))
	}
	l.stale.set(to)
	return d.w.write(buf, int64(to)*l.place)
}

// outdate removes a note that speaks of parked bytes.
func (d *device) outdate() error {
	if !d.noted {
		return nil
	}
	d.noted = false
	return d.save(nil)
}

// clearLot zeroes the places that are still in use: the disk has no data there.
func (d *device) clearLot() error {
	d.parking.Lock()
	defer d.parking.Unlock()
	return d.zeroStale()
}

// zeroStale zeroes all places that are neither the disk's nor zero already.
func (d *device) zeroStale() error {
	if d.lot == nil {
		return nil
	}
	for place := range d.lot.n {
		if d.lot.stale.has(place) {
			if err := d.zero(int64(place)*d.lot.place, d.lot.place); err != nil {
				return fmt.Errorf("zero what was parked: %w", err)
			}
			d.lot.stale.drop(place)
		}
	}
	return nil
}

// resumeLot takes over what an earlier run parked. What was parked after the last checkpoint is unknown, so every slot that
// neither belongs to the disk nor holds a piece is zeroed.
func (d *device) resumeLot() error {
	l := d.lot
	if l == nil || l.end == 0 {
		return nil
	}
	run := int32(0) // places before this one are dealt with
	for place := range l.n + 1 {
		if place < l.n && !l.disk.has(place) {
			if _, parked := l.what[place]; !parked {
				continue
			}
			l.stale.set(place)
		}
		if place > run {
			if err := d.zero(int64(run)*l.place, int64(place-run)*l.place); err != nil {
				return fmt.Errorf("zero what an earlier run parked: %w", err)
			}
		}
		run = place + 1
	}
	return nil
}
