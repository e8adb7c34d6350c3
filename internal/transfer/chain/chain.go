package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/qcow2"
	"github.com/berth-vm/berth/internal/transfer/format/raw"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Link is one file of a chain.
type Link struct {
	Name string // how messages call it
	Blob source.Blob
	// Raw says that the file is the disk as it is. Only the oldest can be.
	Raw bool
	// Size is the required size of the disk; 0: that is not known.
	Size int64
}

// Chain is a chain as one blob, and the image in it.
type Chain struct {
	places []place // the newest first
	info   source.Info
	disk   int64
	grain  int64

	mu     sync.Mutex // guards what follows
	layers []layer    // as places
	covers *cover     // what is newer than the layer at
	at     int
	loaded extent.Image // of that layer; nil: not yet
}

// layer is one image of the chain.
type layer interface {
	Size() int64
	Image() extent.Image
	Parts(ctx context.Context, data func(extent.Extent) error, zero func(at, n int64) error) error
}

// Open reads the headers and tables of all links, the oldest first, and returns an error if they cannot be a chain. ctx is also
// used for all later reads. After an error the caller still has to close the files.
func Open(ctx context.Context, links []Link) (*Chain, error) {
	places, err := arrange(links)
	if err != nil {
		return nil, err
	}
	c := &Chain{places: places, grain: 1 << 62}
	for i, p := range places {
		l, err := c.open(ctx, p, i == len(places)-1)
		if err != nil {
			return nil, about(p.Name, err)
		}
		c.layers = append(c.layers, l)
	}
	c.disk = c.layers[0].Size()
	for i := 1; i < len(places); i++ {
		if newer, older := c.layers[i-1].Size(), c.layers[i].Size(); newer < older {
			return nil, task.Errorf(task.BadImage, "%s is of a disk of %d bytes and %s below it of one of %d: a disk that became smaller has no chain",
				places[i-1].Name, newer, places[i].Name, older)
		}
	}
	if err := c.named(); err != nil {
		return nil, err
	}
	c.rewind()
	c.describe()
	return c, c.check(ctx)
}

// open reads the header of a link.
func (c *Chain) open(ctx context.Context, p place, oldest bool) (layer, error) {
	at, err := source.NewReaderAt(ctx, p.Blob)
	if err != nil {
		return nil, err
	}
	file := extent.File{ReaderAt: at, Size: p.size}
	if p.Raw && !oldest {
		return nil, task.Errorf(task.BadTask, "only the oldest file of a chain can be a raw disk")
	}
	var l layer
	if p.Raw {
		l = plain{raw.Open(file)}
	} else {
		q, err := qcow2.OpenLayer(file)
		if err != nil {
			return nil, err
		}
		if name, has := q.Below(); has && oldest {
			return nil, task.Errorf(task.UnsafeImage, "it is an increment over %q, and nothing is below it: the chain does not begin with a whole disk", name)
		}
		l, c.grain = q, min(c.grain, q.Grain())
	}
	if p.Size != 0 && l.Size() != p.Size {
		return nil, task.Errorf(task.BadImage, "it is of a disk of %d bytes and should be of one of %d", l.Size(), p.Size)
	}
	return l, nil
}

// plain is a raw disk as the oldest of a chain: nothing is below it, so it need not say which ranges it hides.
type plain struct{ image extent.Image }

func (p plain) Size() int64         { return p.image.Size() }
func (p plain) Image() extent.Image { return p.image }
func (plain) Parts(context.Context, func(extent.Extent) error, func(at, n int64) error) error {
	return nil
}

// named compares the name that a file has for the one below it with the chain. A file may name none; one that names another shows
// that a file is missing, or that the order is wrong.
func (c *Chain) named() error {
	for i, l := range c.layers {
		q, is := l.(*qcow2.Layer)
		if !is {
			continue
		}
		if name, has := q.Below(); has && base(name) != base(c.places[i+1].Name) {
			return task.Errorf(task.BadImage, "%s is an increment over %q, and below it is %s: a file is missing, or they are not in their order",
				c.places[i].Name, name, c.places[i+1].Name)
		}
	}
	return nil
}

func base(name string) string { return path.Base(name) }

// describe makes the blob's Info of those of its files.
func (c *Chain) describe() {
	newest, last := c.places[0], c.places[len(c.places)-1]
	c.info = newest.Blob.Info()
	c.info.Size, c.info.Labels, c.info.MediaType = last.end(), nil, ""
	h := sha256.New()
	for _, p := range c.places {
		info := p.Blob.Info()
		if info.Version == "" {
			c.info.Version = ""
			return
		}
		if info.Weak != "" {
			c.info.Weak = info.Weak
		}
		if info.Passing != "" {
			c.info.Passing = info.Passing
		}
		h.Write([]byte(info.Version + "\n"))
	}
	c.info.Version = "chain:" + hex.EncodeToString(h.Sum(nil))
}

// check goes through all tables, so that a file that ends too early is found before a byte is written.
func (c *Chain) check(ctx context.Context) error {
	ignore := func(extent.Extent) error { return nil }
	for i, l := range c.layers {
		if err := l.Parts(ctx, ignore, nil); err != nil {
			return about(c.places[i].Name, err)
		}
	}
	return nil
}

// about says which file of the chain an error is about.
func about(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }
