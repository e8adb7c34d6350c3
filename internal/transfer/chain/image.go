package chain

import (
	"context"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Size is the size of the disk.
func (c *Chain) Size() int64 { return c.disk }

// Granule implements extent.Image.
func (c *Chain) Granule() int64 { return min(c.grain, 64<<10) }

// Extents implements extent.Image. Only what no newer file has is in it.
func (c *Chain) Extents(ctx context.Context, from, to int64) ([]extent.Extent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var es []extent.Extent
	for i, p := range c.places {
		lo, hi := max(from, p.at), min(to, p.end())
		if lo >= hi {
			continue
		}
		if err := c.move(ctx, i); err != nil {
			return nil, err
		}
		own, err := c.loaded.Extents(ctx, lo-p.at, hi-p.at)
		if err != nil {
			if errors.Is(err, extent.ErrCrowded) {
				return nil, err
			}
			return nil, about(p.Name, err)
		}
		for _, e := range own {
			if es, err = c.visible(es, e, p); err != nil {
				return nil, err
			}
		}
	}
	return es, nil
}

// rewind goes back to the newest file.
func (c *Chain) rewind() { c.at, c.covers, c.loaded = 0, newCover(c.grain), nil }

// move goes to the file of that number: of all that are newer, what they have is in the cover.
func (c *Chain) move(ctx context.Context, to int) error {
	if to < c.at {
		c.rewind()
	}
	for c.at < to {
		l := c.layers[c.at]
		err := l.Parts(ctx, func(e extent.Extent) error { return c.covers.add(e.Guest, e.Size) }, c.covers.add)
		if err != nil {
			name := c.places[c.at].Name
			c.rewind() // half of it may be in the cover
			return about(name, err)
		}
		c.at, c.loaded = c.at+1, nil
	}
	if c.loaded == nil {
		c.loaded = c.layers[c.at].Image()
	}
	return nil
}

// visible adds those parts of an extent of a file that nothing newer hides, with their places in the blob.
func (c *Chain) visible(es []extent.Extent, e extent.Extent, p place) ([]extent.Extent, error) {
	for size := e.Size; size > 0; {
		n, hidden := c.covers.run(e.Guest, size)
		switch {
		case e.Coding == extent.Plain:
		case n < size:
			return nil, task.Errorf(task.UnsupportedImage, "%s is compressed in parts of %d bytes, and a newer file has a smaller part at byte %d of the disk; "+
				"make them one image with: qemu-img convert", p.Name, e.Size, e.Guest)
		case !hidden:
			e.Host += p.at
			return room(es, e)
		}
		if !hidden {
			var err error
			if es, err = room(es, extent.Extent{Host: p.at + e.Host, Stored: n, Guest: e.Guest, Size: n}); err != nil {
				return nil, err
			}
		}
		e.Host, e.Guest, size = e.Host+n, e.Guest+n, size-n
	}
	return es, nil
}

// room adds an extent if the window has room for it.
func room(es []extent.Extent, e extent.Extent) ([]extent.Extent, error) {
	if len(es) == extent.MaxExtents {
		return nil, extent.ErrCrowded
	}
	return append(es, e), nil
}
