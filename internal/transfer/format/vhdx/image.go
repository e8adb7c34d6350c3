package vhdx

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/sequential"
)

// The states of a block that matter; in all others below partial there is no data.
const (
	stateMask = 7
	invalid   = 4
	present   = 6
	partial   = 7
)

// image is a VHDX whose header and metadata are known.
type image struct {
	*layout
	*geometry
}

// read reads header and metadata from a file or the beginning of one.
func read(f extent.File) (*image, error) {
	p := make([]byte, fixedSize)
	if err := f.Fill(p, 0, "vhdx header"); err != nil {
		return nil, err
	}
	l, err := parseLayout(p)
	if err != nil {
		return nil, err
	}
	g, err := parseMetadata(f, l.metadata)
	if err != nil {
		return nil, err
	}
	if need := g.entries() * 8; need > l.bat.n {
		return nil, task.Errorf(task.BadImage, "vhdx block allocation table has %d bytes, a virtual size of %d with blocks of %d needs %d",
			l.bat.n, g.disk, g.block, need)
	}
	return &image{l, g}, nil
}

// Open reads header and metadata.
func Open(f extent.File) (extent.Image, error) {
	m, err := read(f)
	if err != nil {
		return nil, err
	}
	if err := m.replayed(f); err != nil {
		return nil, err
	}
	shape := extent.Shape{Disk: m.disk, File: f.Size, Unit: m.block}
	return extent.NewIndex(shape, func(ctx context.Context, emit func(extent.Extent) error) error {
		return f.Table(m.bat.off, m.entries()*8, "vhdx block allocation table", func(at int64, p []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.extents(at, p, func(e extent.Extent) error {
				if e.Host+e.Stored > f.Size {
					return task.Truncated("vhdx block", e.Host, e.Stored, f.Size)
				}
				return emit(e)
			})
		})
	}), nil
}

// extents emits the extents of a piece of the table that begins at byte at of it.
func (m *image) extents(at int64, p []byte, emit func(extent.Extent) error) error {
	ratio := m.ratio()
	for i := at / 8; len(p) >= 8; i, p = i+1, p[8:] {
		if i%(ratio+1) == ratio {
			continue // a sector bitmap, which only differencing disks have
		}
		guest := (i/(ratio+1)*ratio + i%(ratio+1)) * m.block
		if guest >= m.disk {
			return nil
		}
		entry := binary.LittleEndian.Uint64(p)
		switch entry & stateMask {
		case present:
		case partial, invalid:
			return task.Errorf(task.BadImage, "vhdx block for byte %d of the disk is in state %d, which only a differencing disk can have",
				guest, entry&stateMask)
		default:
			continue
		}
		host := entry &^ (megabyte - 1)
		if host > 1<<62 {
			return task.Errorf(task.BadImage, "vhdx block for byte %d of the disk is at byte %d, beyond any file", guest, host)
		}
		n := min(m.block, m.disk-guest)
		if err := emit(extent.Extent{Host: int64(host), Stored: n, Guest: guest, Size: n}); err != nil {
			return err
		}
	}
	return nil
}

// Plan reads a VHDX that comes as a stream: log, metadata and table come first in whatever writes them.
type Plan struct{ m *image }

const (
	wantTable = iota
	wantLog
)

// Head implements sequential.Plan.
func (p *Plan) Head(head []byte, _ bool) (int64, error) {
	size := int64(len(head))
	if size < fixedSize {
		return fixedSize, nil
	}
	l, err := parseLayout(head)
	if err != nil {
		return 0, err
	}
	if size < l.metadata.end() {
		return l.metadata.end(), nil
	}
	f := extent.File{ReaderAt: bytes.NewReader(head), Size: size}
	if p.m, err = read(f); err != nil {
		return 0, err
	}
	if l.log.end() <= size {
		err = l.replayed(f)
	}
	return size, err
}

// Shape implements sequential.Plan.
func (p *Plan) Shape() extent.Shape { return extent.Shape{Disk: p.m.disk, Unit: p.m.block} }

// Tables implements sequential.Plan.
func (p *Plan) Tables(b *sequential.Book) {
	b.Want(sequential.Region{Off: p.m.bat.off, Len: p.m.entries() * 8, Tag: wantTable})
	if p.m.logID != (guid{}) {
		b.Want(sequential.Region{Off: p.m.log.off, Len: p.m.log.n, Tag: wantLog})
	}
}

// Table implements sequential.Plan.
func (p *Plan) Table(b *sequential.Book, r sequential.Region, at int64, piece []byte) error {
	if r.Tag == wantLog {
		return nil // Open looks at it
	}
	return p.m.extents(at, piece, b.Place)
}

// Open implements sequential.Plan.
func (p *Plan) Open(f extent.File) (extent.Image, error) { return Open(f) }
