package sequential

import (
	"context"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	// window is how much of the file Finish reads at a time.
	window = 64 << 20
	// gulp is how many parked bytes are read back at a time.
	gulp = 1 << 20
)

// tally counts the bytes that were put, so that the end can tell whether all were.
type tally struct {
	plain  int64  // bytes
	coded  int64  // extents
	digest uint64 // of where coded extents were and went
}

func (t *tally) add(e extent.Extent) {
	if e.Coding == extent.Plain {
		t.plain += e.Size
		return
	}
	t.coded++
	t.digest += mix(mix(uint64(e.Host)) + uint64(e.Guest))
}

// mix spreads the bits of x (the finaliser of splitmix64), so that sums of it collide by chance only.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Finish is called at the end of the stream: it reads the tables once more, now that all have arrived, places the parked data, and
// checks that all data in the tables was put. It returns the size of the disk.
func (d *Decoder) Finish(ctx context.Context) (int64, error) {
	n, err := d.take(d.wait, true)
	if err != nil {
		return 0, err
	}
	if err := d.keep(d.wait[n:]); err != nil {
		return 0, err
	}
	d.wait = nil
	d.book.forget()
	f := extent.File{ReaderAt: &d.parks, Size: d.book.pos}
	m, err := d.plan.Open(f)
	if err != nil {
		return 0, err
	}
	if m.Size() != d.book.shape.Disk {
		return 0, task.Errorf(task.BadImage, "image says at its beginning that the disk has %d bytes and at its end that it has %d",
			d.book.shape.Disk, m.Size())
	}
	e := ending{Decoder: d}
	err = extent.Walk(ctx, m, f.Size, window, func(_, _ int64, es []extent.Extent) error {
		for _, x := range es {
			if err := e.place(ctx, x); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if e.absent != d.put {
		return 0, task.Errorf(task.BadImage, "image maps bytes of the file twice, or its tables contradict its data: %d bytes and %d compressed "+
			"parts of the disk were placed as they came, the tables speak of %d and %d; if it is sound, put it where it can be "+
			"read at random", d.put.plain, d.put.coded, e.absent.plain, e.absent.coded)
	}
	return m.Size(), nil
}

// ending places what is parked.
type ending struct {
	*Decoder
	buf    []byte
	absent tally // of what is not parked, so must have been put
	// Data in [from, to) of the file was put and can be forgotten when no other data can be there.
	from, to int64
}

func (d *ending) place(ctx context.Context, e extent.Extent) error {
	if e.Coding != extent.Plain {
		return d.placeCoded(e)
	}
	for e.Size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, parked, absent := d.parks.find(e.Host)
		x := e
		if parked == 0 {
			x.Size = min(absent, e.Size)
			d.absent.add(x)
		} else {
			x.Size = min(parked, e.Size, gulp)
			x.Stored = x.Size
			if err := d.back(x); err != nil {
				return err
			}
		}
		e.Host, e.Guest, e.Size = e.Host+x.Size, e.Guest+x.Size, e.Size-x.Size
	}
	return nil
}

func (d *ending) placeCoded(e extent.Extent) error {
	_, parked, _ := d.parks.find(e.Host)
	if parked == 0 {
		d.absent.add(e)
		return nil
	}
	if short := e.Stored - parked; short > 0 {
		if short >= sector && !d.book.shape.Loose {
			return task.Errorf(task.BadImage, "compressed data at byte %d of the file should have %d bytes, but byte %d belongs to something else",
				e.Host, e.Stored, e.Host+parked)
		}
		e.Stored = parked
	}
	return d.back(e)
}

// forget says that what was put is not needed again, if it lies before host: extents come in the file's order.
func (d *ending) forget(host int64) {
	f, ok := d.out.(extent.Forgetter)
	for ok && d.from < min(d.to, host) {
		at, parked, _ := d.parks.find(d.from)
		n := min(parked, d.to-d.from, host-d.from)
		if n <= 0 {
			break
		}
		f.Forget(at, n)
		d.from += n
	}
	if d.from >= d.to || host >= d.to {
		d.from = host
	}
}

// back reads parked bytes and puts them.
func (d *ending) back(e extent.Extent) error {
	d.forget(e.Host)
	d.to = max(d.to, e.Host+e.Stored)
	if int64(len(d.buf)) < e.Stored {
		d.buf = make([]byte, max(e.Stored, gulp))
	}
	p := d.buf[:e.Stored]
	if _, err := d.parks.ReadAt(p, e.Host); err != nil {
		return err
	}
	return d.out.Put(e, p)
}
