package vhd

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/raw"
)

const (
	headerSize = 1024
	unused     = 0xffffffff
	// maxBlock is far above the usual 2 MiB, and small enough that sizes cannot overflow.
	maxBlock = 1 << 30
)

// Open reads the footer and, of a dynamic disk, the header.
func Open(f extent.File) (extent.Image, error) {
	p := make([]byte, FooterSize)
	if err := f.Fill(p, 0, "vhd footer"); err != nil {
		return nil, err
	}
	if string(p[:8]) != footerCookie {
		return openFixed(f)
	}
	foot, err := parseFooter(p)
	if err != nil {
		return nil, err
	}
	if foot.kind == fixed {
		return openFixed(f)
	}
	head := make([]byte, headerSize)
	if err := f.Fill(head, foot.header, "vhd dynamic header"); err != nil {
		return nil, err
	}
	d, err := parseHeader(foot, head)
	if err != nil {
		return nil, err
	}
	shape := extent.Shape{Disk: d.disk, File: f.Size, Unit: d.block}
	return extent.NewIndex(shape, func(ctx context.Context, emit func(extent.Extent) error) error {
		return d.scan(ctx, f, emit)
	}), nil
}

func openFixed(f extent.File) (extent.Image, error) {
	p := make([]byte, FooterSize)
	if err := f.Fill(p, f.Size-FooterSize, "vhd footer"); err != nil {
		return nil, err
	}
	foot, err := parseFooter(p)
	if err != nil {
		return nil, err
	}
	if foot.kind != fixed {
		return nil, task.Errorf(task.BadImage, "vhd of type %d has no copy of its footer at the beginning", foot.kind)
	}
	if have := f.Size - FooterSize; foot.disk > have {
		return nil, task.Truncated("fixed vhd's disk", 0, foot.disk, have)
	}
	return raw.Prefix(foot.disk), nil
}

// disk is a dynamic VHD: blocks, each behind a bitmap of its sectors, and a table of where they are.
type disk struct {
	disk   int64
	block  int64
	bitmap int64
	table  int64
	blocks int64 // that the disk needs
}

func parseHeader(foot footer, p []byte) (*disk, error) {
	be := binary.BigEndian
	switch foot.kind {
	case dynamic:
	case differencing:
		return nil, task.Errorf(task.UnsafeImage, "image is invalid because it has invalid backing file: a differencing vhd needs its parent, "+
			"and an import never opens another file; merge it with: qemu-img convert -O vhdx")
	default:
		return nil, task.Errorf(task.UnsupportedImage, "Invalid format vhd type %d for image: fixed (2) and dynamic (3) are known", foot.kind)
	}
	if string(p[:8]) != headerCookie {
		return nil, task.Errorf(task.BadImage, "vhd dynamic header begins with %q instead of %q", p[:8], headerCookie)
	}
	if want, got := sum(p, 36), be.Uint32(p[36:]); want != got {
		return nil, task.Errorf(task.BadImage, "vhd dynamic header has checksum %#x, its bytes have %#x", got, want)
	}
	d := &disk{disk: foot.disk, block: int64(be.Uint32(p[32:]))}
	if d.block < 512 || d.block > maxBlock || d.block&(d.block-1) != 0 {
		return nil, task.Errorf(task.BadImage, "vhd block size is %d, it must be a power of two from 512 to %d", d.block, maxBlock)
	}
	d.bitmap = (d.block/512/8 + 511) &^ 511
	d.blocks = d.disk / d.block
	if d.disk%d.block != 0 {
		d.blocks++
	}
	if has := int64(be.Uint32(p[28:])); d.blocks > has {
		return nil, task.Errorf(task.BadImage, "vhd table has %d entries, a virtual size of %d with blocks of %d needs %d",
			has, d.disk, d.block, d.blocks)
	}
	table := be.Uint64(p[16:])
	if table > math.MaxInt64-1<<40 {
		return nil, task.Errorf(task.BadImage, "vhd table is at byte %d, beyond any file", table)
	}
	d.table = int64(table)
	return d, nil
}

func (d *disk) scan(ctx context.Context, f extent.File, emit func(extent.Extent) error) error {
	return f.Table(d.table, d.blocks*4, "vhd block allocation table", func(at int64, p []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return d.entries(at, p, func(e extent.Extent) error {
			// The last block is there in full too, although the disk needs only a part of it. One that is not was cut off.
			if e.Host+d.block > f.Size {
				return task.Truncated("vhd block", e.Host, d.block, f.Size)
			}
			return emit(e)
		})
	})
}

// entries emits the extents of a piece of the table that begins at byte at of it. The bitmaps are not asked: what they
// call unused is zero in the block, and QEMU reads it from there too.
func (d *disk) entries(at int64, p []byte, emit func(extent.Extent) error) error {
	for i := at / 4; len(p) >= 4 && i < d.blocks; i, p = i+1, p[4:] {
		sector := binary.BigEndian.Uint32(p)
		if sector == unused {
			continue
		}
		guest := i * d.block
		n := min(d.block, d.disk-guest)
		e := extent.Extent{Host: int64(sector)*512 + d.bitmap, Stored: n, Guest: guest, Size: n}
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}
