// Package vhd reads the format of Virtual PC, Hyper-V up to 2008 and Azure: fixed disks (raw with a footer behind them)
// and dynamic ones. Differencing disks name a parent file and are refused.
package vhd

import (
	"encoding/binary"
	"math"

	"github.com/berth-vm/berth/internal/task"
)

// FooterSize is the size of the footer, which is the last sector of every VHD and the first of a dynamic one.
const FooterSize = 512

const (
	footerCookie = "conectix"
	headerCookie = "cxsparse"

	fixed        = 2
	dynamic      = 3
	differencing = 4

	// maxGeometry is the size in sectors of the largest disk that cylinders, heads and sectors can express.
	maxGeometry = 65535 * 16 * 255
)

// footer has the fields of the footer.
type footer struct {
	kind   uint32
	disk   int64 // as QEMU sees it
	size   int64 // the current size, to the byte
	header int64 // where the dynamic header is
}

// IsFixed reports whether tail, the last FooterSize bytes of a file of size bytes, makes that file a fixed VHD: an intact footer
// that describes a disk as large as everything before it. Any other end of a raw disk is its own data.
func IsFixed(tail []byte, size int64) bool {
	if len(tail) != FooterSize || string(tail[:8]) != footerCookie {
		return false
	}
	f, err := parseFooter(tail)
	return err == nil && f.kind == fixed && f.size == size-FooterSize && f.disk <= f.size
}

// parseFooter checks a footer and reads it.
func parseFooter(p []byte) (footer, error) {
	be := binary.BigEndian
	if string(p[:8]) != footerCookie {
		return footer{}, task.Errorf(task.BadImage, "vhd footer begins with %q instead of %q", p[:8], footerCookie)
	}
	if want, got := sum(p, 64), be.Uint32(p[64:]); want != got {
		return footer{}, task.Errorf(task.BadImage, "vhd footer has checksum %#x, its bytes have %#x", got, want)
	}
	current := be.Uint64(p[48:])
	if current > math.MaxInt64/2 {
		return footer{}, task.Errorf(task.BadImage, "vhd virtual size %d is larger than any disk", current)
	}
	f := footer{kind: be.Uint32(p[60:]), size: int64(current)}
	// Virtual PC takes the size from the geometry, and so did QEMU when it wrote in its own old name; other programs take it from the
	// size field. QEMU tells them apart by the creator (since 10.1 with this very list; before, it knew the others by name), and a
	// disk must be as large here as it is there.
	sectors := int64(be.Uint16(p[56:])) * int64(p[58]) * int64(p[59])
	if creator := string(p[28:32]); creator != "vpc " && creator != "qemu" || sectors == maxGeometry {
		sectors = f.size / 512
	}
	f.disk = sectors * 512
	if off := be.Uint64(p[16:]); off <= math.MaxInt64-1024 {
		f.header = int64(off)
	} else {
		f.header = -1
	}
	return f, nil
}

// sum returns the complement of the sum of all bytes except the four of the checksum itself.
func sum(p []byte, at int) uint32 {
	var n uint32
	for i, b := range p {
		if i < at || i >= at+4 {
			n += uint32(b)
		}
	}
	return ^n
}
