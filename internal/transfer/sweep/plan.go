package sweep

import (
	"context"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/expand"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	// unitSize is how much of the file one fetch reads: enough to hide a round trip, and small enough that several fit the memory bound.
	unitSize = 4 << 20
	// gapMin is the smallest gap in the file that is worth another request instead of reading through it.
	gapMin = 256 << 10
	// unitParts bounds what one unit has to do when many parts of the disk claim the same bytes of the file.
	unitParts = 8 << 10
	// windowExtents is how many extents a window of the file has, if the image's granule is right.
	windowExtents = 16 << 10
)

// unit is a stretch of the file that one worker fetches, and what it puts where.
type unit struct {
	number   int64
	from, to int64           // of the file, to be fetched; nothing if equal
	parts    []format.Extent // in order of Host; one of Size 0 is a gap that is only hashed
	hashed   int64           // what lies before belongs to the units before and was hashed there
	mark     int64           // when this unit and all before are done, so is the file up to here
}

// most is the latest end of the unit: a multiple of the size of units, so that data that is verified in pieces is not read twice.
// An extent that cannot be cut may reach beyond it.
func (u *unit) most() int64 { return u.from - u.from%unitSize + unitSize }

// planner cuts the file into units, in order.
type planner struct {
	image format.Image
	size  int64 // of the file
	all   bool  // fetch gaps too: every byte has to be hashed
	tail  int64 // of the disk; no plain part lies on both sides of it
	emit  func(*unit) error

	next    int64 // number of the next unit
	covered int64 // the file before this is in a unit already
	unit    *unit // being filled, nil before its first part
}

// run plans the file from mark on; the first hashed bytes are hashed already.
func (p *planner) run(ctx context.Context, mark, hashed int64) error {
	p.covered = hashed
	window := p.size
	if granule := max(p.image.Granule(), 512); granule < p.size/windowExtents {
		window = max(windowExtents*granule, unitSize)
	}
	for from := mark; from < p.size; {
		es, to, err := p.window(ctx, from, min(window, p.size-from))
		if err != nil {
			return err
		}
		for i, e := range es {
			if err := p.check(e); err != nil {
				return err
			}
			next := to // where the extent after this one begins: nothing behind that is claimed before it is done
			if i+1 < len(es) {
				next = es[i+1].Host
			}
			if err := p.gap(e.Host); err != nil {
				return err
			}
			if err := p.add(e, next); err != nil {
				return err
			}
		}
		if err := p.gap(to); err != nil {
			return err
		}
		if err := p.flush(to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// gap covers what lies between the last extent and host, if every byte is wanted.
func (p *planner) gap(host int64) error {
	if !p.all || host <= p.covered {
		return nil
	}
	return p.add(format.Extent{Host: p.covered, Stored: host - p.covered}, host)
}

// window asks for the extents of a window, a smaller one if they are too many.
func (p *planner) window(ctx context.Context, from, n int64) ([]format.Extent, int64, error) {
	for {
		es, err := p.image.Extents(ctx, from, from+n)
		if !errors.Is(err, extent.ErrCrowded) {
			return es, from + n, err
		}
		if n == 1 {
			return nil, 0, task.Errorf(task.BadImage, "more than %d parts of the disk claim the same bytes at %d of the file", extent.MaxExtents, from)
		}
		n = (n + 1) / 2
	}
}

// check returns the last look at an extent before it becomes I/O: formats promise this, the sink depends on it.
func (p *planner) check(e format.Extent) error {
	disk := p.image.Size()
	if e.Host < 0 || e.Stored <= 0 || e.Guest < 0 || e.Size <= 0 || e.Host >= p.size || e.Guest > disk-e.Size ||
		e.Coding == format.Plain && (e.Stored != e.Size || e.Stored > p.size-e.Host) || e.Coding != format.Plain && e.Stored > expand.Most {
		return task.Errorf(task.BadImage, "the image is damaged: %d bytes at byte %d of the file of %d are to be %d bytes at byte %d of the disk of %d",
			e.Stored, e.Host, p.size, e.Size, e.Guest, disk)
	}
	return nil
}

// add puts an extent into units. A plain one is cut where a unit is full or the disk's tail begins.
func (p *planner) add(e format.Extent, next int64) error {
	for e.Stored > 0 {
		if !p.fits(e) {
			if err := p.flush(min(e.Host, next)); err != nil {
				return err
			}
		}
		if p.unit == nil {
			p.unit = &unit{number: p.next, from: e.Host, to: e.Host, hashed: max(p.covered, e.Host)}
			p.next++
		}
		part := e
		if e.Coding == format.Plain {
			part = p.cut(e)
		}
		part.Stored = min(part.Stored, p.size-part.Host) // a coded one may say more than there is
		u := p.unit
		u.parts = append(u.parts, part)
		u.to = max(u.to, part.Host+part.Stored)
		p.covered = max(p.covered, u.to)
		if e.Coding != format.Plain {
			return nil
		}
		e.Host, e.Stored = e.Host+part.Stored, e.Stored-part.Stored
		e.Guest, e.Size = e.Guest+part.Size, e.Size-part.Size
	}
	return nil
}

// fits reports whether e, or its front if it can be cut, can go into the unit being filled.
func (p *planner) fits(e format.Extent) bool {
	u := p.unit
	if u == nil {
		return true
	}
	end := e.Host + 1
	if e.Coding != format.Plain {
		end = e.Host + e.Stored
	}
	return e.Host >= u.from && end <= u.most() && len(u.parts) < unitParts && (p.all || e.Host-u.to < gapMin)
}

// cut returns the front of a plain extent that fits the unit and lies on one side of the disk's tail.
func (p *planner) cut(e format.Extent) format.Extent {
	n := min(e.Stored, p.unit.most()-e.Host)
	if e.Size == 0 {
		e.Stored = n
		return e
	}
	if e.Guest < p.tail {
		n = min(n, p.tail-e.Guest)
	}
	e.Stored, e.Size = n, n
	return e
}

// flush emits the unit being filled. All data of the file before mark is in it or in earlier units.
func (p *planner) flush(mark int64) error {
	u := p.unit
	if u == nil {
		u = &unit{number: p.next, from: mark, to: mark, hashed: mark}
		p.next++
	}
	p.unit = nil
	u.mark = mark
	return p.emit(u)
}
