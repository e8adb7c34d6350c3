// Package vhdx reads Hyper-V's format: dynamic and fixed disks. A log that was not replayed is refused with the command
// that replays it, and so are differencing disks, which name a parent file.
package vhdx

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	fileSignature = "vhdxfile"
	// The fixed part of the file: two headers and two copies of the region table, 64 KiB apart.
	header1, header2 = 64 << 10, 128 << 10
	regions1         = 192 << 10
	regions2         = 256 << 10
	fixedSize        = 320 << 10

	headerSize  = 4 << 10
	regionsSize = 64 << 10
	megabyte    = 1 << 20
)

// guid is a GUID as it lies in the file: the first three groups are little endian.
type guid [16]byte

func parseGUID(a uint32, b, c uint16, d uint64) (g guid) {
	binary.LittleEndian.PutUint32(g[0:], a)
	binary.LittleEndian.PutUint16(g[4:], b)
	binary.LittleEndian.PutUint16(g[6:], c)
	binary.BigEndian.PutUint64(g[8:], d)
	return g
}

var (
	batRegion      = parseGUID(0x2dc27766, 0xf623, 0x4200, 0x9d64115e9bfd4a08)
	metadataRegion = parseGUID(0x8b7ca206, 0x4790, 0x4b9a, 0xb8fe575f050f886e)

	fileParameters = parseGUID(0xcaa16737, 0xfa36, 0x4d43, 0xb3b633f0aa44e76b)
	diskSize       = parseGUID(0x2fa54224, 0xcd1b, 0x4876, 0xb2115dbed83bf4b8)
	sectorSize     = parseGUID(0x8141bf1d, 0xa96f, 0x4709, 0xba47f233a8faab5f)
	physicalSector = parseGUID(0xcda348c7, 0x445d, 0x4471, 0x9cc9e9885251c556)
	diskID         = parseGUID(0xbeca12ab, 0xb2e6, 0x4523, 0x93efc309e000c746)
	parentLocator  = parseGUID(0xa8d35f2d, 0xb30b, 0x454d, 0xabf7d3d84834ab0c)
)

// region is a part of the file.
type region struct{ off, n int64 }

func (r region) end() int64 { return r.off + r.n }

// layout has the positions that the fixed part of the file gives.
type layout struct {
	log           region
	logID         guid // all zero if the log is empty
	bat, metadata region
}

// parseLayout reads the first fixedSize bytes.
func parseLayout(p []byte) (*layout, error) {
	if len(p) < fixedSize {
		return nil, task.Truncated("vhdx header", 0, fixedSize, int64(len(p)))
	}
	if string(p[:8]) != fileSignature {
		return nil, task.Errorf(task.BadImage, "vhdx begins with %q instead of %q", p[:8], fileSignature)
	}
	l := &layout{}
	if err := l.header(p[header1:header1+headerSize], p[header2:header2+headerSize]); err != nil {
		return nil, err
	}
	return l, l.regions(p[regions1:regions1+regionsSize], p[regions2:regions2+regionsSize])
}

// header reads the newer of the two headers.
func (l *layout) header(a, b []byte) error {
	le := binary.LittleEndian
	okA, okB := intact(a, "head"), intact(b, "head")
	p := a
	switch {
	case !okA && !okB:
		return task.Errorf(task.BadImage, "vhdx has no header with a right checksum")
	case !okA, okB && le.Uint64(b[8:]) > le.Uint64(a[8:]):
		p = b
	}
	if log, version := le.Uint16(p[64:]), le.Uint16(p[66:]); log != 0 || version != 1 {
		return task.Errorf(task.UnsupportedImage, "Invalid format vhdx version %d with log version %d for image: 1 and 0 are known", version, log)
	}
	copy(l.logID[:], p[48:64])
	off, n := le.Uint64(p[72:]), le.Uint32(p[68:])
	var err error
	l.log, err = newRegion("log", off, n)
	return err
}

// regions reads the first intact region table.
func (l *layout) regions(a, b []byte) error {
	le := binary.LittleEndian
	p := a
	if !intact(a, "regi") {
		if p = b; !intact(b, "regi") {
			return task.Errorf(task.BadImage, "vhdx has no region table with a right checksum")
		}
	}
	count := le.Uint32(p[8:])
	if count > 2047 {
		return task.Errorf(task.BadImage, "vhdx region table has %d entries, it can have 2047", count)
	}
	for i := range int(count) {
		e := p[16+32*i:]
		r, err := newRegion("region", le.Uint64(e[16:]), le.Uint32(e[24:]))
		if err != nil {
			return err
		}
		var to *region
		switch id := guid(e[:16]); id {
		case batRegion:
			to = &l.bat
		case metadataRegion:
			to = &l.metadata
		default:
			if le.Uint32(e[28:])&1 != 0 {
				return task.Errorf(task.UnsupportedImage, "vhdx requires a region nobody here knows: %x", id)
			}
			continue
		}
		if to.n != 0 {
			return task.Errorf(task.BadImage, "vhdx region table names the same region twice: at byte %d and at byte %d", to.off, r.off)
		}
		*to = r
	}
	if l.bat.n == 0 || l.metadata.n < 64<<10 {
		return task.Errorf(task.BadImage, "vhdx region table has a block allocation table of %d bytes and metadata of %d", l.bat.n, l.metadata.n)
	}
	return nil
}

func newRegion(what string, off uint64, n uint32) (region, error) {
	if off%megabyte != 0 || n%megabyte != 0 || off > math.MaxInt64/2 || off < megabyte && n > 0 {
		return region{}, task.Errorf(task.BadImage, "vhdx %s of %d bytes at byte %d: both must be multiples of 1 MiB behind the header", what, n, off)
	}
	return region{int64(off), int64(n)}, nil
}

// intact reports whether a structure has its signature and the CRC-32C that lies behind it.
func intact(p []byte, signature string) bool {
	if string(p[:4]) != signature {
		return false
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, p[:4])
	sum = crc32.Update(sum, table, make([]byte, 4))
	sum = crc32.Update(sum, table, p[8:])
	return sum == binary.LittleEndian.Uint32(p[4:])
}

// replayed refuses a log with entries: the tables are only right once those have been written to their places.
func (l *layout) replayed(f extent.File) error {
	if l.logID == (guid{}) {
		return nil
	}
	const sector = 4 << 10
	return f.Table(l.log.off, l.log.n, "vhdx log", func(_ int64, p []byte) error {
		for ; len(p) >= sector; p = p[sector:] {
			if string(p[:4]) == "loge" && guid(p[32:48]) == l.logID {
				return task.Errorf(task.BadImage, "vhdx was not closed properly: its log has entries that must be replayed; "+
					"run: qemu-img check -r all IMAGE.vhdx")
			}
		}
		return nil
	})
}
