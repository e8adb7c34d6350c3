package sink

import (
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/task"
)

// lot keeps parked bytes in places of a device that the disk has not come to yet. What is parked has addresses of its
// own, from 0; a table says which place holds which piece of them, so that a place the disk claims can be vacated: its
// piece moves to another. In the worst case everything is parked before anything is placed; since a place in the file
// belongs to at most one place on the disk, there is then as much room as there is to park, but for what the image
// carries along unused.
type lot struct {
	place int64           // the size of a place
	where []int32         // of each piece, its place
	what  map[int32]int32 // of each place that holds one, its piece
	used  []uint64        // a bit for each place the disk has written to, or that is taken
	free  int32           // no place at or above this one is free
	end   int64           // addresses given out so far
	last  []byte          // the piece being filled
	limit int64           // the places' end
}

// lotPlaces bounds the tables to some MiB whatever the device's size.
const lotPlaces = 1 << 20

func newLot(limit int64) *lot {
	place := int64(64 << 10)
	for limit/place > lotPlaces {
		place *= 2
	}
	n := limit / place
	return &lot{place: place, what: map[int32]int32{}, used: make([]uint64, (n+63)/64), free: int32(n),
		last: make([]byte, 0, place), limit: limit}
}

func (l *lot) isUsed(p int32) bool { return l.used[p/64]&(1<<(p%64)) != 0 }
func (l *lot) use(p int32)         { l.used[p/64] |= 1 << (p % 64) }

// find takes the highest free place: disks fill from below.
func (l *lot) find() (int32, error) {
	for l.free > 0 {
		l.free--
		if !l.isUsed(l.free) {
			l.use(l.free)
			return l.free, nil
		}
	}
	return 0, &task.Error{Reason: task.DoesNotFit, Err: fmt.Errorf(
		"the image's tables come after its data, and the device has no room left to keep %d bytes until then; "+
			"give a larger volume, or an image that is not compressed as a whole", l.end)}
}

// Park implements Disk: on the part of the device that is not written yet.
func (d *device) Park(p []byte) (int64, error) {
	d.parking.Lock()
	defer d.parking.Unlock()
	if d.lot == nil {
		return 0, errors.New("park on a device whose first part was written by an earlier run")
	}
	l := d.lot
	at := l.end
	for len(p) > 0 {
		n := min(len(p), int(l.place)-len(l.last))
		l.last = append(l.last, p[:n]...)
		l.end += int64(n)
		p = p[n:]
		if len(l.last) == int(l.place) {
			if err := d.parkPiece(); err != nil {
				return 0, err
			}
		}
	}
	return at, nil
}

// parkPiece writes the piece that is full.
func (d *device) parkPiece() error {
	l := d.lot
	place, err := l.find()
	if err != nil {
		return err
	}
	if err := d.w.write(l.last, int64(place)*l.place); err != nil {
		return err
	}
	l.what[place] = int32(len(l.where))
	l.where = append(l.where, place)
	l.last = l.last[:0]
	return nil
}

// Unpark implements Disk. What an earlier run parked on a device is lost: the table is not in the note.
func (d *device) Unpark(n int64) error {
	if n > 0 {
		return fmt.Errorf("what an earlier run parked on the device cannot be found again")
	}
	return nil
}

// Parked implements Disk.
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
		if piece == int64(len(l.where)) {
			copy(p[:n], l.last[in:])
		} else if _, err := d.w.file.ReadAt(p[:n], int64(l.where[piece])*l.place+in); err != nil {
			return failed(fmt.Errorf("read parked bytes back: %w", err))
		}
		p, at = p[n:], at+n
	}
	return nil
}

// vacate makes sure that nothing is parked in a range the disk is about to write, and that nothing will be.
func (d *device) vacate(off, n int64) error {
	if n == 0 {
		return nil
	}
	d.parking.Lock()
	defer d.parking.Unlock()
	l := d.lot
	if l == nil {
		return nil
	}
	for p := off / l.place; p*l.place < min(off+n, l.limit); p++ {
		place := int32(p)
		if place >= int32(l.limit/l.place) {
			break
		}
		l.use(place)
		piece, parked := l.what[place]
		if !parked {
			continue
		}
		to, err := l.find()
		if err != nil {
			return err
		}
		if err := d.move(place, to); err != nil {
			return err
		}
		delete(l.what, place)
		l.what[to], l.where[piece] = piece, to
	}
	return nil
}

// move copies a piece and zeroes the place it had, because the disk need not write all of that.
func (d *device) move(from, to int32) error {
	buf := make([]byte, d.lot.place)
	if _, err := d.w.file.ReadAt(buf, int64(from)*d.lot.place); err != nil {
		return failed(fmt.Errorf("move parked bytes: %w", err))
	}
	if err := d.w.write(buf, int64(to)*d.lot.place); err != nil {
		return err
	}
	return d.zero(int64(from)*d.lot.place, d.lot.place)
}

// clearLot zeroes what is still parked: the disk has nothing there.
func (d *device) clearLot() error {
	d.parking.Lock()
	defer d.parking.Unlock()
	if d.lot == nil {
		return nil
	}
	for place := range d.lot.what {
		if err := d.zero(int64(place)*d.lot.place, d.lot.place); err != nil {
			return fmt.Errorf("zero what was parked: %w", err)
		}
	}
	d.lot = nil
	return nil
}
