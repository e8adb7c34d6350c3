// Package lazydisk reads the disk in a container image before the image is there: what is read is fetched from its registry.
//
// It knows the formats of disks; what it fetches, keeps and proves is up to package lazylayer. It does not know its readers.
package lazydisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/expand"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/lazylayer"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// Disk is the disk in a container image, of whatever format, that is fetched from its registry as it is read. What is promised of
// its bytes is in package lazylayer.
type Disk struct {
	layer  *lazylayer.Layer
	member *source.Member
	info   source.Info
	image  format.Disk

	clusters clusters
}

// Open finds the disk and reads what its format says at its beginning; of formats but raw and qcow2 all tables. Of a layer that is
// compressed all before them is read too.
func Open(ctx context.Context, r task.Registry, cache *lazylayer.Cache) (*Disk, error) {
	blob, err := registry.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	info := blob.Info()
	layer, err := cache.Open(ctx, blob)
	if err != nil {
		return nil, err
	}
	d := &Disk{layer: layer, member: info.Member, info: info}
	if layer.Kind() != decode.None {
		d.begin() // nothing can be read before it
	}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// open reads what the image says about itself.
func (d *Disk) open(ctx context.Context) error {
	file := io.NewSectionReader(d.layer, d.member.Offset, d.member.Size)
	head := make([]byte, min(format.HeadSize, file.Size()))
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if kind := decode.Detect(head); kind != decode.None {
		return task.Errorf(task.UnsupportedImage, "%s: %s is compressed (%s) in its layer: it can only be imported", d.info.Name, d.member.Name, kind)
	}
	var tail []byte // a compressed layer would have to be read to its end: what has no signature is raw there
	if d.layer.Kind() == decode.None && file.Size() >= format.TailSize {
		tail = make([]byte, format.TailSize)
		if _, err := file.ReadAt(tail, file.Size()-format.TailSize); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	kind := format.Detect(head, tail, file.Size())
	var err error
	if d.image, err = format.OpenDisk(kind, file, file.Size()); err == nil && d.image == nil {
		d.image, err = openMapped(ctx, kind, file)
	}
	if err == nil && d.image.Size() <= 0 {
		err = task.Errorf(task.BadImage, "%s: %s is empty", d.info.Name, d.member.Name)
	}
	return err
}

// mapped is an image whose tables were read beforehand.
type mapped struct {
	format.Image
	places *earlyboot.Map
}

func openMapped(ctx context.Context, kind format.Kind, file *io.SectionReader) (format.Disk, error) {
	image, err := format.Open(kind, file, file.Size())
	if err != nil {
		return nil, err
	}
	places, err := earlyboot.NewMap(ctx, image, file.Size())
	if err != nil {
		return nil, err
	}
	return &mapped{image, places}, nil
}

// In implements format.Disk.
func (m *mapped) In(from, to int64) ([]format.Extent, error) { return m.places.In(from, to), nil }

// begin starts the pass over the layer.
func (d *Disk) begin() { d.layer.Begin(d.alone) }

// alone: there is no second disk in the layer.
func (d *Disk) alone() error {
	if d.member.Rest == nil {
		return nil
	}
	from := d.member.Offset + d.member.Size
	return d.member.Rest(io.NewSectionReader(d.layer, from, 1<<62-from))
}

// Size returns the disk's.
func (d *Disk) Size() int64 { return d.image.Size() }

// Version names the bytes: digests of the image and of its layer.
func (d *Disk) Version() string { return d.info.Version }

// State returns the verification state of the layer.
func (d *Disk) State() lazylayer.State { return d.layer.State() }

// Settled waits until the pass over the layer has come to an end.
func (d *Disk) Settled() { d.layer.Settled() }

// Close closes the layer. There must be no readers any more.
func (d *Disk) Close() error { return d.layer.Close() }

// ReadAt is io.ReaderAt of the disk. The first one begins the pass.
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	d.begin()
	if off < 0 || off >= d.Size() {
		return 0, io.EOF
	}
	var end error
	if left := d.Size() - off; int64(len(p)) > left {
		p, end = p[:left], io.EOF
	}
	clear(p)
	es, err := d.image.In(off, off+int64(len(p)))
	if err != nil {
		return 0, err
	}
	for _, e := range es {
		if err := d.put(p, off, e); err != nil {
			return 0, err
		}
	}
	return len(p), end
}

// put copies what p, which is at off of the disk, has of an extent.
func (d *Disk) put(p []byte, off int64, e format.Extent) error {
	if e.Coding == format.Plain {
		return d.read(p[e.Guest-off:][:e.Size], e.Host)
	}
	b, err := d.clusters.get(e, func() ([]byte, error) { return d.expand(e) })
	if err != nil {
		return err
	}
	lo, hi := max(e.Guest, off), min(e.Guest+e.Size, off+int64(len(p)))
	copy(p[lo-off:hi-off], b[lo-e.Guest:])
	return nil
}

// read fills p with bytes of the image's file.
func (d *Disk) read(p []byte, host int64) error {
	n, err := d.layer.ReadAt(p, d.member.Offset+host)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = task.Errorf(task.BadImage, "%s ends in the middle of %s", d.info.Name, d.member.Name)
	}
	return err
}

func (d *Disk) expand(e format.Extent) ([]byte, error) {
	if e.Stored > expand.Most {
		return nil, expand.Damaged(e, fmt.Errorf("more than %d bytes", expand.Most))
	}
	stored := make([]byte, min(e.Stored, d.member.Size-e.Host))
	if err := d.read(stored, e.Host); err != nil {
		return nil, err
	}
	x, _ := expanders.Get().(*expand.Expander)
	defer expanders.Put(x)
	b, err := x.Expand(e, stored)
	return append([]byte(nil), b...), err
}

var expanders = sync.Pool{New: func() any { return expand.New() }}

// clusters keeps the last compressed clusters that were expanded: a guest reads one in several goes.
type clusters struct {
	mu   sync.Mutex
	kept [8]struct {
		host, guest int64
		data        []byte
	}
	next int
}

func (c *clusters) get(e format.Extent, expand func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	for _, k := range c.kept {
		if k.data != nil && k.host == e.Host && k.guest == e.Guest {
			c.mu.Unlock()
			return k.data, nil
		}
	}
	c.mu.Unlock()
	b, err := expand()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.kept[c.next%len(c.kept)]
	k.host, k.guest, k.data = e.Host, e.Guest, b
	c.next++
	return b, nil
}
