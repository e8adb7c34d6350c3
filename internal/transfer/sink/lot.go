package sink

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
)

// lot keeps parked bytes in places of a device that the disk has not come to yet. Parked bytes have addresses of their own, from
// 0, in pieces as large as a place; a table maps pieces to places, so that a place that the disk needs can be vacated: its piece
// moves to another. In the worst case everything is parked before anything is placed. Then, since bytes of the file belong to at
// most one place on the disk, there is as much space as there is to park, except for unused parts of the image; and pieces that
// were placed are forgotten and free their space.
type lot struct {
	place int64           // the size of a place
	n     int32           // how many there are
	where []int32         // of each piece, its place; nowhere once it is forgotten
	what  map[int32]int32 // of each place that holds one, its piece
	disk  bitmap          // places the disk has written to
	stale bitmap          // other places that are not zero
	next  int32           // where to look for a free place first
	end   int64           // addresses given out so far
	last  []byte          // the piece being filled
	gone  map[int32]int64 // of pieces forgotten in part, how many bytes
}

const nowhere = -1

// lotPlaces bounds the tables to some MiB whatever the device's size.
const lotPlaces = 1 << 20

func newLot(limit int64) *lot {
	place := int64(64 << 10)
	for limit/place > lotPlaces {
		place *= 2
	}
	n := int32(limit / place)
	return &lot{place: place, n: n, what: map[int32]int32{}, gone: map[int32]int64{}, disk: newBitmap(n), stale: newBitmap(n), next: n}
}

// find takes a free place for a piece. It looks from above: disks fill from below.
func (l *lot) find(piece int32) (int32, error) {
	for range l.n {
		if l.next--; l.next < 0 {
			l.next = l.n - 1
		}
		if _, taken := l.what[l.next]; !taken && !l.disk.has(l.next) {
			l.what[l.next] = piece
			return l.next, nil
		}
	}
	return 0, task.Errorf(task.DoesNotFit, "the image's tables come after its data, and of the device's %d bytes none are left to keep %d bytes until then; "+
		"give a larger volume, or an image that is not compressed as a whole", int64(l.n)*l.place, l.end)
}

// forget counts n bytes of a piece as not needed, and its place as free once that is all of it.
func (l *lot) forget(piece int32, n int64) {
	if l.gone[piece] += n; l.gone[piece] < l.place || l.where[piece] == nowhere {
		return
	}
	delete(l.gone, piece)
	delete(l.what, l.where[piece])
	l.stale.set(l.where[piece])
	l.where[piece] = nowhere
}

// save returns the data that restore needs. The piece being filled is not in it: the device has written it to its place.
func (l *lot) save() ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	head := binary.AppendUvarint(nil, uint64(l.end))
	head = binary.AppendUvarint(head, uint64(len(l.where)))
	for _, p := range l.where {
		head = binary.AppendVarint(head, int64(p))
	}
	for _, word := range l.disk {
		head = binary.LittleEndian.AppendUint64(head, word)
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

var errLot = errors.New("what is noted of parked bytes is damaged")

// restore reads what save wrote. It does not know which slots became stale later: the caller zeroes them all.
func (l *lot) restore(saved []byte) error {
	b, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(saved)), int64(lotPlaces*(binary.MaxVarintLen32+1))))
	if err != nil {
		return fmt.Errorf("%w: %w", errLot, err)
	}
	r := bytes.NewReader(b)
	end, err1 := binary.ReadUvarint(r)
	pieces, err2 := binary.ReadUvarint(r)
	if err := errors.Join(err1, err2); err != nil || pieces > uint64(l.n) || end > uint64(l.n)*uint64(l.place) {
		return errLot
	}
	for piece := range int32(pieces) {
		p, err := binary.ReadVarint(r)
		if err != nil || p < nowhere || p >= int64(l.n) {
			return errLot
		}
		l.where = append(l.where, int32(p))
		if p != nowhere {
			l.what[int32(p)] = piece
		}
	}
	l.end = int64(end)
	if err := binary.Read(r, binary.LittleEndian, l.disk); err != nil {
		return errLot
	}
	return nil
}

// bitmap is a set of places.
type bitmap []uint64

func newBitmap(n int32) bitmap    { return make(bitmap, (n+63)/64) }
func (b bitmap) has(i int32) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) set(i int32)      { b[i/64] |= 1 << (i % 64) }
func (b bitmap) drop(i int32)     { b[i/64] &^= 1 << (i % 64) }
