// Package vdi reads VirtualBox's own format: dynamic and fixed disks. Differencing and undo images need another file
// and are refused.
package vdi

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/sequential"
)

const (
	signature  = 0xbeda107f
	version11  = 0x00010001
	headerSize = 512

	dynamic = 1
	fixed   = 2

	// Entries of the block map from discarded on have no block: they read as zeroes.
	discarded = 0xfffffffe

	// VirtualBox makes blocks of 1 MiB and so does QEMU; the format allows others.
	minBlock, maxBlock = 4 << 10, 256 << 20
	// maxBlocks is as many as QEMU opens: a map just under 2 GiB.
	maxBlocks = 0x1fffff80
)

// image has the fields of the header.
type image struct {
	disk   int64
	table  int64
	data   int64
	block  int64
	blocks int64 // that the disk needs
}

func parse(p []byte) (*image, error) {
	le := binary.LittleEndian
	if int64(len(p)) < headerSize {
		return nil, task.Truncated("vdi header", 0, headerSize, int64(len(p)))
	}
	if got := le.Uint32(p[0x40:]); got != signature {
		return nil, task.Errorf(task.BadImage, "vdi signature is %#x instead of %#x", got, uint32(signature))
	}
	if v := le.Uint32(p[0x44:]); v != version11 {
		return nil, task.Errorf(task.UnsupportedImage, "Invalid format vdi version %d.%d for image: 1.1 is known", v>>16, v&0xffff)
	}
	none := make([]byte, 16)
	if kind := le.Uint32(p[0x4c:]); kind != dynamic && kind != fixed || !bytes.Equal(p[0x1a8:0x1b8], none) ||
		!bytes.Equal(p[0x1b8:0x1c8], none) {
		return nil, task.Errorf(task.UnsafeImage, "image is invalid because it has invalid backing file: a vdi of type %d with link %x and parent %x "+
			"needs another file, which an import never opens; make it whole with: VBoxManage clonemedium",
			kind, p[0x1a8:0x1b8], p[0x1b8:0x1c8])
	}
	m := &image{table: int64(le.Uint32(p[0x154:])), data: int64(le.Uint32(p[0x158:])), block: int64(le.Uint32(p[0x178:]))}
	if sector := le.Uint32(p[0x168:]); sector != 512 || m.table%512 != 0 || m.data%512 != 0 {
		return nil, task.Errorf(task.BadImage, "vdi has sectors of %d bytes, its block map at byte %d and its data at byte %d: they must be 512 "+
			"and multiples of it", sector, m.table, m.data)
	}
	if m.block < minBlock || m.block > maxBlock || m.block&(m.block-1) != 0 {
		return nil, task.Errorf(task.BadImage, "vdi block size is %d, it must be a power of two from %d to %d", m.block, minBlock, maxBlock)
	}
	if extra := le.Uint32(p[0x17c:]); extra != 0 {
		return nil, task.Errorf(task.UnsupportedImage, "vdi has %d extra bytes before each block, which nobody here knows", extra)
	}
	size, has := le.Uint64(p[0x170:]), int64(le.Uint32(p[0x180:]))
	if size > math.MaxInt64-maxBlock || has > maxBlocks || int64(size) > has*m.block {
		return nil, task.Errorf(task.BadImage, "vdi has %d blocks of %d bytes for a virtual size of %d", has, m.block, size)
	}
	// QEMU counts whole sectors and rounds an odd size up.
	m.disk = (int64(size) + 511) &^ 511
	m.blocks = (m.disk + m.block - 1) / m.block
	return m, nil
}

// entries emits the extents of a piece of the block map that begins at byte at of it.
func (m *image) entries(at int64, p []byte, emit func(extent.Extent) error) error {
	for i := at / 4; len(p) >= 4 && i < m.blocks; i, p = i+1, p[4:] {
		block := binary.LittleEndian.Uint32(p)
		if block >= discarded {
			continue
		}
		guest := i * m.block
		n := min(m.block, m.disk-guest)
		e := extent.Extent{Host: m.data + int64(block)*m.block, Stored: n, Guest: guest, Size: n}
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}

// Open reads the header.
func Open(f extent.File) (extent.Image, error) {
	p := make([]byte, headerSize)
	if err := f.Fill(p, 0, "vdi header"); err != nil {
		return nil, err
	}
	m, err := parse(p)
	if err != nil {
		return nil, err
	}
	shape := extent.Shape{Disk: m.disk, File: f.Size, Unit: m.block}
	return extent.NewIndex(shape, func(ctx context.Context, emit func(extent.Extent) error) error {
		return f.Table(m.table, m.blocks*4, "vdi block map", func(at int64, p []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.entries(at, p, func(e extent.Extent) error {
				if e.Host+e.Stored > f.Size {
					return task.Truncated("vdi block", e.Host, e.Stored, f.Size)
				}
				return emit(e)
			})
		})
	}), nil
}

// Plan reads a VDI that comes as a stream: its map comes first.
type Plan struct{ m *image }

// Head implements sequential.Plan.
func (p *Plan) Head(head []byte, _ bool) (int64, error) {
	m, err := parse(head)
	p.m = m
	return int64(len(head)), err
}

// Shape implements sequential.Plan.
func (p *Plan) Shape() extent.Shape { return extent.Shape{Disk: p.m.disk, Unit: p.m.block} }

// Tables implements sequential.Plan.
func (p *Plan) Tables(b *sequential.Book) {
	b.Want(sequential.Region{Off: p.m.table, Len: p.m.blocks * 4})
}

// Table implements sequential.Plan.
func (p *Plan) Table(b *sequential.Book, _ sequential.Region, at int64, piece []byte) error {
	return p.m.entries(at, piece, b.Place)
}

// Open implements sequential.Plan.
func (p *Plan) Open(f extent.File) (extent.Image, error) { return Open(f) }
