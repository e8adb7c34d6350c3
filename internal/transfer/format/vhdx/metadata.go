package vhdx

import (
	"encoding/binary"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	metadataTable = 64 << 10
	// maxDisk is the largest disk the format has: 64 TiB.
	maxDisk = 64 << 40
	// blocksPerBitmap times the sector size is how much of the disk one sector bitmap block describes.
	sectorsPerBitmap = 1 << 23
)

// geometry has the disk's properties from the metadata.
type geometry struct {
	disk   int64
	block  int64
	sector int64
}

// blocks returns how many blocks the disk needs.
func (g *geometry) blocks() int64 { return (g.disk + g.block - 1) / g.block }

// ratio returns how many blocks come before each sector bitmap in the table.
func (g *geometry) ratio() int64 { return sectorsPerBitmap * g.sector / g.block }

// entries returns how many entries of the table the disk needs.
func (g *geometry) entries() int64 {
	n := g.blocks()
	if n == 0 {
		return 0
	}
	return n + (n-1)/g.ratio()
}

// parseMetadata reads the metadata region at r.
func parseMetadata(f extent.File, r region) (*geometry, error) {
	le := binary.LittleEndian
	p := make([]byte, metadataTable)
	if err := f.Fill(p, r.off, "vhdx metadata table"); err != nil {
		return nil, err
	}
	count := int(le.Uint16(p[10:]))
	if string(p[:8]) != "metadata" || count > 2047 {
		return nil, task.Errorf(task.BadImage, "vhdx metadata table begins with %q and has %d entries; it must be \"metadata\" and at most 2047",
			p[:8], count)
	}
	g := &geometry{}
	for i := range count {
		e := p[32+32*i:]
		off, n, flags := int64(le.Uint32(e[16:])), int64(le.Uint32(e[20:])), le.Uint32(e[24:])
		id := guid(e[:16])
		value := make([]byte, 8)
		switch id {
		case parentLocator:
			return nil, unsafeParent()
		case fileParameters, diskSize:
		case sectorSize:
			value = value[:4]
		case physicalSector, diskID:
			continue
		default:
			const required = 1 << 2
			if flags&required != 0 {
				return nil, task.Errorf(task.UnsupportedImage, "vhdx requires metadata nobody here knows: %x", id)
			}
			continue
		}
		if n < int64(len(value)) || off < metadataTable || off > r.n-n {
			return nil, task.Errorf(task.BadImage, "vhdx metadata item %x of %d bytes at %d lies outside its region of %d", id, n, off, r.n)
		}
		if err := f.Fill(value, r.off+off, "vhdx metadata"); err != nil {
			return nil, err
		}
		if err := g.item(id, value); err != nil {
			return nil, err
		}
	}
	return g, g.check()
}

func unsafeParent() error {
	return task.Errorf(task.UnsafeImage, "image is invalid because it has invalid backing file: a differencing vhdx needs its parent, and an "+
		"import never opens another file; merge it with: Convert-VHD or Merge-VHD")
}

func (g *geometry) item(id guid, p []byte) error {
	le := binary.LittleEndian
	switch id {
	case fileParameters:
		const hasParent = 1 << 1
		if le.Uint32(p[4:])&hasParent != 0 {
			return unsafeParent()
		}
		g.block = int64(le.Uint32(p))
	case diskSize:
		size := le.Uint64(p)
		if size > maxDisk {
			return task.Errorf(task.BadImage, "vhdx virtual size is %d, the format has disks of at most %d", size, int64(maxDisk))
		}
		g.disk = int64(size)
	case sectorSize:
		g.sector = int64(le.Uint32(p))
	}
	return nil
}

func (g *geometry) check() error {
	if g.block < megabyte || g.block > 256*megabyte || g.block&(g.block-1) != 0 {
		return task.Errorf(task.BadImage, "vhdx block size is %d, it must be a power of two from 1 MiB to 256 MiB", g.block)
	}
	if g.sector != 512 && g.sector != 4096 || g.disk%g.sector != 0 {
		return task.Errorf(task.BadImage, "vhdx has sectors of %d bytes and a virtual size of %d: sectors must be 512 or 4096 and the size a "+
			"multiple of it", g.sector, g.disk)
	}
	return nil
}
