package extent

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/berth-vm/berth/internal/task"
)

// Scan goes through an image's tables once and emits every extent the file of that image has, in any order. It must
// stop with the error emit returns, and may call emit from one goroutine at a time only.
type Scan func(ctx context.Context, emit func(Extent) error) error

const (
	// maxEntries bounds the index: 24 bytes each, so 12 MiB.
	maxEntries = 1 << 19
	// stripe is the length at which plain entries are cut in the file, so that an entry that covers a byte begins at most this far
	// before it.
	stripe = 16 << 20
	// maxClaims is how many parts of the disk may claim a byte of the file on average. A sound image has one; without
	// a limit a few tables that name each other's clusters keep a scan busy for hours.
	maxClaims = 64
)

// entry is an Extent in 24 bytes: the coding and the size on the disk of a coded one are the index's own.
type entry struct {
	host, guest int64
	n           int64 // bytes of a plain entry; minus the stored bytes of a coded one
}

// Index answers Image.Extents from a Scan. It keeps the map of one band of the file, as wide as fits its memory, which
// is the whole file for nearly every image; for the others it scans once per band.
type Index struct {
	scan   Scan
	shape  Shape
	limit  int // entries
	mu     sync.Mutex
	loaded bool
	band   []entry // sorted by host, then guest
	from   int64   // the band covers [from, to) of the file
	to     int64
}

// Shape has the properties that all extents of one image share.
type Shape struct {
	Disk   int64  // the size of the disk
	File   int64  // the size of the file
	Unit   int64  // the size on the disk of a coded extent, save the last one
	Coding Coding // of coded extents
	// Loose says that a coded extent's Stored is only an upper bound and the next extent's Host may be a better one.
	Loose bool
}

// NewIndex makes the index of an image.
func NewIndex(s Shape, scan Scan) *Index { return &Index{scan: scan, shape: s, limit: maxEntries} }

// Size implements Image.
func (x *Index) Size() int64 { return x.shape.Disk }

// Granule implements Image.
func (x *Index) Granule() int64 { return x.shape.Unit }

// Extents implements Image.
func (x *Index) Extents(ctx context.Context, from, to int64) ([]Extent, error) {
	from, to = max(from, 0), min(to, x.shape.File)
	x.mu.Lock()
	defer x.mu.Unlock()
	var es []Extent
	for from < to {
		if !x.loaded || from < x.from || from >= x.to {
			if err := x.load(ctx, from); err != nil {
				return nil, err
			}
		}
		end := min(to, x.to)
		var ok bool
		if es, ok = x.cut(es, from, end); !ok {
			return nil, ErrCrowded
		}
		from = end
	}
	return es, nil
}

// cut appends what the band has in [from, to) and says whether it was not too much.
func (x *Index) cut(es []Extent, from, to int64) ([]Extent, bool) {
	for i := x.search(from - stripe); i < len(x.band) && x.band[i].host < to; i++ {
		e := x.band[i]
		var out Extent
		if e.n < 0 {
			if e.host < from {
				continue
			}
			out = x.coded(i)
		} else {
			lo, hi := max(e.host, from), min(e.host+e.n, to)
			if lo >= hi {
				continue
			}
			out = Extent{Host: lo, Stored: hi - lo, Guest: e.guest + lo - e.host, Size: hi - lo}
		}
		if n := len(es); n > 0 && follows(es[n-1], out) {
			es[n-1].Stored += out.Stored
			es[n-1].Size += out.Size
			continue
		}
		if len(es) == MaxExtents {
			return nil, false
		}
		es = append(es, out)
	}
	return es, true
}

func (x *Index) coded(i int) Extent {
	e := x.band[i]
	out := Extent{Host: e.host, Stored: -e.n, Guest: e.guest, Coding: x.shape.Coding}
	out.Size = min(x.shape.Unit, x.shape.Disk-e.guest)
	if x.shape.Loose {
		if next := x.search(e.host + 1); next < len(x.band) {
			out.Stored = min(out.Stored, x.band[next].host-e.host)
		}
	}
	return out
}

// follows reports whether b continues where a ends, in the file and on the disk.
func follows(a, b Extent) bool {
	return a.Coding == Plain && b.Coding == Plain && a.Host+a.Stored == b.Host && a.Guest+a.Size == b.Guest
}

// load scans for the band that begins at from.
func (x *Index) load(ctx context.Context, from int64) error {
	x.loaded = false
	x.band = x.band[:0]
	x.from, x.to = from, x.shape.File
	var plain, coded int64
	err := x.scan(ctx, func(e Extent) error {
		if e.Coding == Plain {
			plain += e.Size
		} else {
			coded++
		}
		if plain/maxClaims > x.shape.File || coded > x.shape.File {
			return task.Errorf(task.BadImage, "image maps its %d bytes more than %d times over", x.shape.File, maxClaims)
		}
		if e.Coding != Plain {
			if e.Host < from {
				return nil
			}
			return x.add(entry{e.Host, e.Guest, -e.Stored})
		}
		for e.Size > 0 {
			n := min(e.Size, stripe-e.Host%stripe)
			if e.Host+n > from {
				if err := x.add(entry{e.Host, e.Guest, n}); err != nil {
					return err
				}
			}
			e.Host, e.Guest, e.Size = e.Host+n, e.Guest+n, e.Size-n
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.sort()
	x.loaded = true
	return nil
}

func (x *Index) add(e entry) error {
	if e.host >= x.to {
		return nil
	}
	if n := len(x.band); n > 0 && e.n > 0 {
		if p := &x.band[n-1]; p.n > 0 && p.host+p.n == e.host && p.guest+p.n == e.guest && e.host%stripe != 0 {
			p.n += e.n
			return nil
		}
	}
	if len(x.band) == x.limit {
		if err := x.narrow(); err != nil {
			return err
		}
		if e.host >= x.to {
			return nil
		}
	}
	if n := len(x.band); n == cap(x.band) && n >= 1<<16 {
		x.band = slices.Grow(x.band, x.limit-n) // once, instead of holding two large ones at a time again and again
	}
	x.band = append(x.band, e)
	return nil
}

// narrow makes the band about half as wide, because it is full.
func (x *Index) narrow() error {
	x.sort()
	end := x.band[len(x.band)/2].host
	keep := x.search(max(end, x.from+1))
	if keep == len(x.band) {
		return ErrCrowded
	}
	x.to = x.band[keep].host
	x.band = x.band[:keep]
	return nil
}

// search finds the first entry that begins at host or after it.
func (x *Index) search(host int64) int {
	i, _ := slices.BinarySearchFunc(x.band, host, func(e entry, h int64) int { return cmp.Compare(e.host, h) })
	return i
}

func (x *Index) sort() {
	slices.SortFunc(x.band, func(a, b entry) int {
		if c := cmp.Compare(a.host, b.host); c != 0 {
			return c
		}
		return cmp.Compare(a.guest, b.guest)
	})
}
