package sequential

import (
	"cmp"
	"slices"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	// maxPlaces and maxWants bound what is known of the file ahead: 24 bytes each. Entries beyond that are dropped, so their data is
	// parked when it arrives and placed at the end; that only costs time.
	maxPlaces = 3 << 17
	maxWants  = 1 << 17
)

// Region is a part of the file that a format wants to see: a table.
type Region struct {
	Off, Len int64
	Tag      int64 // the format's own
	// Passing regions are not kept: nothing reads them again.
	Passing bool
}

// place is a plain extent (n bytes) or a coded one (n negative: the stored bytes).
type place struct{ host, guest, n int64 }

// want is the rest of a Region; at is how much of it has been seen.
type want struct {
	Region
	at int64
}

// next returns where what is left of it begins.
func (w want) next() int64 { return w.Off + w.at }

// Book records what is known about the part of the file that has not arrived yet.
type Book struct {
	shape  extent.Shape
	pos    int64 // everything before it has come
	places heap[place]
	wants  heap[want]
	late   []place // coded, told of after they went by
	replay bool    // tables are read again that were read before a crash, so nothing is late
	// lost: an entry had to be dropped, so an unknown range may be data.
	lost bool
}

func newBook() *Book {
	return &Book{
		places: heap[place]{max: maxPlaces, compare: func(a, b place) int { return cmp.Compare(a.host, b.host) }},
		wants:  heap[want]{max: maxWants, compare: func(a, b want) int { return cmp.Compare(a.next(), b.next()) }},
	}
}

// Want asks for a region of the file. Its bytes come to Plan.Table in pieces.
func (b *Book) Want(r Region) {
	if r.Len > 0 && b.wants.push(want{Region: r}) {
		b.lost = true
	}
}

// Place returns what lies where. It never fails: formats emit to it what they emit to an index.
func (b *Book) Place(e extent.Extent) error {
	p := place{e.Host, e.Guest, e.Stored}
	if gone := b.pos - e.Host; gone > 0 && gone < e.Stored && e.Coding == extent.Plain {
		p = place{b.pos, e.Guest + gone, e.Stored - gone}
	}
	if e.Coding != extent.Plain {
		p.n = -e.Stored
	} else if l := b.places.last(); l != nil && l.n > 0 && l.host+l.n == p.host && l.guest+l.n == p.guest {
		l.n += p.n
		return nil
	}
	if e.Coding != extent.Plain && p.host < b.pos && p.host >= b.pos-b.memory() && !b.replay {
		b.late = append(b.late, p)
	}
	if e.Stored > 0 && p.host >= b.pos && b.places.push(p) {
		b.lost = true
	}
	return nil
}

// memory returns for how long tails are remembered, in bytes: compressed data goes into the rest of the clusters before the table
// that describes it.
func (b *Book) memory() int64 { return max(4*b.shape.Unit, 64<<10) }

// complete reports whether every table has been seen and remembered, so that what is unknown is of no use.
func (b *Book) complete() bool { return !b.lost && b.wants.len() == 0 }

// passed drops places that have gone by. A plain one may have gone by in part: a table lay across it.
func (b *Book) passed() {
	for b.places.len() > 0 && b.places.top().host < b.pos {
		e := b.places.pop()
		if gone := b.pos - e.host; e.n > gone {
			b.places.push(place{b.pos, e.guest + gone, e.n - gone})
		}
	}
}

// maxShared is how many places may claim the same bytes before a stream gives up on them. None do in a sound image.
const maxShared = 64

// here takes the plain places that begin at pos. A coded one there as well is dropped: the end will find it missing.
func (b *Book) here() []place {
	var list []place
	for b.places.len() > 0 && b.places.top().host == b.pos && len(list) < maxShared {
		if e := b.places.pop(); e.n > 0 {
			list = append(list, e)
		}
	}
	return list
}

// gap returns how far the next known place is from host, 0 if there is none or it begins there as well.
func (b *Book) gap(host int64) int64 {
	if b.places.len() == 0 {
		return 0
	}
	return b.places.top().host - host
}

// ahead returns the beginning of the next known entry.
func (b *Book) ahead() (int64, bool) {
	at, ok := int64(0), false
	if b.places.len() > 0 {
		at, ok = b.places.top().host, true
	}
	if b.wants.len() > 0 {
		if w := b.wants.top().next(); !ok || w < at {
			at, ok = w, true
		}
	}
	return at, ok
}

// forget drops all entries.
func (b *Book) forget() {
	b.places.items, b.wants.items = nil, nil
	b.lost = true
}

// heap has its least element first, and never more than max of them: when it is full it forgets the greater half.
type heap[T any] struct {
	items   []T
	max     int
	compare func(a, b T) int
	newest  int // the index of the last pushed item while nothing has moved, or -1
}

func (h *heap[T]) len() int { return len(h.items) }

// top returns the least element. The caller must know there is one.
func (h *heap[T]) top() T { return h.items[0] }

// last returns the element pushed last, if it can still be found. What it is compared by must not change.
func (h *heap[T]) last() *T {
	if len(h.items) == 0 || h.newest < 0 || h.newest >= len(h.items) {
		return nil
	}
	return &h.items[h.newest]
}

// push adds an element and reports whether others had to be forgotten for it.
func (h *heap[T]) push(v T) (forgot bool) {
	if len(h.items) >= h.max {
		slices.SortFunc(h.items, h.compare) // a sorted slice is a heap
		clear(h.items[h.max/2:])
		h.items = h.items[:h.max/2]
		forgot = true
	}
	h.items = append(h.items, v)
	i := len(h.items) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h.compare(h.items[up], h.items[i]) <= 0 {
			break
		}
		h.items[up], h.items[i] = h.items[i], h.items[up]
		i = up
	}
	h.newest = i
	return forgot
}

// pop takes the least element.
func (h *heap[T]) pop() T {
	h.newest = -1
	v := h.items[0]
	n := len(h.items) - 1
	h.items[0] = h.items[n]
	h.items = h.items[:n]
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < n && h.compare(h.items[child], h.items[least]) < 0 {
				least = child
			}
		}
		if least == i {
			return v
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}
