package vmdk

import (
	"context"
	"encoding/binary"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/sequential"
)

// Open reads the header and the descriptor.
func Open(f extent.File) (extent.Image, error) {
	p := make([]byte, min(f.Size, 64<<10))
	if err := f.Fill(p, 0, "vmdk header"); err != nil {
		return nil, err
	}
	h, err := parse(p)
	if err != nil {
		return nil, err
	}
	if h.descriptor > 0 && h.descSize > 0 {
		text := make([]byte, min(h.descSize, maxDescriptor))
		if err := f.Fill(text, h.descriptor, "vmdk descriptor"); err != nil {
			return nil, err
		}
		if err := parseDescriptor(text).alone(); err != nil {
			return nil, err
		}
	}
	if h.directory < 0 {
		if err := h.footer(f); err != nil {
			return nil, err
		}
	}
	return extent.NewIndex(h.shape(f.Size), func(ctx context.Context, emit func(extent.Extent) error) error {
		return h.scan(ctx, f, emit)
	}), nil
}

// footer takes the grain directory's place from the header's copy, which is the last sector but one.
func (h *header) footer(f extent.File) error {
	p := make([]byte, sector)
	if err := f.Fill(p, f.Size-2*sector, "vmdk footer"); err != nil {
		return err
	}
	foot, err := parse(p)
	if err != nil || string(p[:4]) != magic {
		return task.Truncated("vmdk has no footer, which must be the last sector but one; it", f.Size-2*sector, 2*sector, f.Size)
	}
	if foot.directory < 0 || foot.disk != h.disk || foot.grain != h.grain || foot.gtes != h.gtes {
		return task.Errorf(task.BadImage, "vmdk footer contradicts the header: a disk of %d bytes in grains of %d, and of %d in grains of %d",
			foot.disk, foot.grain, h.disk, h.grain)
	}
	h.directory = foot.directory
	return nil
}

func (h *header) scan(ctx context.Context, f extent.File, emit func(extent.Extent) error) error {
	inside := func(e extent.Extent) error {
		if e.Coding != extent.Plain && e.Host < f.Size {
			e.Stored = min(e.Stored, f.Size-e.Host)
		}
		if e.Host+e.Stored > f.Size {
			return task.Truncated("vmdk grain", e.Host, e.Stored, f.Size)
		}
		return emit(e)
	}
	const what = "vmdk grain directory"
	return f.Nested(ctx, h.directory, h.directorySize(), what, func(at int64, p []byte, read extent.ReadTable) error {
		return h.tables(at, p, func(r run) error {
			return read(r.off, r.n, "vmdk grain table", func(at int64, p []byte) error {
				return h.grains(r.guest+at/4*h.grain, p, inside)
			})
		})
	})
}

// Plan reads a VMDK that comes as a stream. If the tables are in front they are used; if they are at the end, the
// markers are, which say of each grain where it belongs.
type Plan struct{ h *header }

const (
	// wantDirectory is the tag of the grain directory; that of grain tables is the part of the disk they describe.
	wantDirectory = -1
	// second is set in the tag of a marker's second part, together with the number of sectors that follow the marker; the tag of the
	// first part is empty. Markers are passing regions.
	second = 1
)

// Head implements sequential.Plan.
func (p *Plan) Head(head []byte, whole bool) (int64, error) {
	h, err := parse(head)
	if err != nil {
		return 0, err
	}
	p.h = h
	if size := int64(len(head)); h.descriptor > 0 && h.descSize > 0 {
		end := h.descriptor + min(h.descSize, maxDescriptor)
		if end > size && !whole {
			return end, nil
		}
		if h.descriptor < size {
			err = parseDescriptor(head[h.descriptor:min(end, size)]).alone()
		}
	}
	if h.directory < 0 && (!h.packed || !h.markers) {
		return 0, task.Errorf(task.BadImage, "vmdk has its grain directory at the end, which only a streamOptimized one can")
	}
	return int64(len(head)), err
}

// Shape implements sequential.Plan.
func (p *Plan) Shape() extent.Shape { return p.h.shape(0) }

// Tables implements sequential.Plan.
func (p *Plan) Tables(b *sequential.Book) {
	if p.h.directory >= 0 {
		b.Want(sequential.Region{Off: p.h.directory, Len: p.h.directorySize(), Tag: wantDirectory})
		return
	}
	b.Want(marker(p.h.first))
}

func marker(off int64) sequential.Region {
	return sequential.Region{Off: off, Len: markerSize, Passing: true}
}

// Table implements sequential.Plan.
func (p *Plan) Table(b *sequential.Book, r sequential.Region, at int64, piece []byte) error {
	switch {
	case r.Passing && r.Tag&second != 0:
		p.special(b, r, piece)
		return nil
	case r.Passing:
		return p.grain(b, r.Off, piece)
	case r.Tag == wantDirectory:
		return p.h.tables(at, piece, func(t run) error {
			b.Want(sequential.Region{Off: t.off, Len: t.n, Tag: t.guest})
			return nil
		})
	default:
		return p.h.grains(r.Tag+at/4*p.h.grain, piece, b.Place)
	}
}

// grain takes a marker: that of a grain, or the first part of another one.
func (p *Plan) grain(b *sequential.Book, off int64, m []byte) error {
	le := binary.LittleEndian
	lba, size := le.Uint64(m), int64(le.Uint32(m[8:]))
	if size == 0 {
		// Where the next marker is depends on the kind of this one, the four bytes that follow. Their region carries how
		// many sectors come after it.
		if lba > maxSectors {
			return task.Errorf(task.BadImage, "vmdk marker at byte %d speaks of %d sectors, beyond any file", off, lba)
		}
		b.Want(sequential.Region{Off: off + markerSize, Len: 4, Tag: int64(lba)<<1 | second, Passing: true})
		return nil
	}
	if size > 2*p.h.grain || lba >= uint64(p.h.disk/sector) || int64(lba)*sector%p.h.grain != 0 {
		return task.Errorf(task.BadImage, "vmdk grain at byte %d has %d bytes for sector %d: it can have %d, and sectors go up to %d",
			off, size, lba, 2*p.h.grain, p.h.disk/sector)
	}
	e := extent.Extent{Host: off + markerSize, Stored: size, Guest: int64(lba) * sector, Coding: extent.Zlib}
	b.Want(marker((e.Host + size + sector - 1) &^ (sector - 1)))
	return b.Place(e)
}

// special handles a marker that is not a grain's: a table, a directory or a footer follows, or nothing.
func (p *Plan) special(b *sequential.Book, r sequential.Region, kind []byte) {
	const endOfStream = 0
	if binary.LittleEndian.Uint32(kind) != endOfStream {
		b.Want(marker(r.Off - markerSize + sector + r.Tag>>1*sector))
	}
}

// Open implements sequential.Plan.
func (p *Plan) Open(f extent.File) (extent.Image, error) { return Open(f) }
