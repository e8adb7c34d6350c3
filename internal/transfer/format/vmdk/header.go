// Package vmdk reads VMware's format where it is one file: monolithicSparse and streamOptimized disks, and single sparse
// extents. A descriptor that names other files is refused: an import never opens one. (The -flat.vmdk of a
// monolithicFlat disk has no header at all; it is raw.)
package vmdk

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	magic  = "KDMV"
	sector = 512
	// atEnd instead of the grain directory's sector says that the header at the end of the file knows it.
	atEnd = math.MaxUint64

	flagLineCheck  = 1 << 0
	flagZeroGrain  = 1 << 2
	flagCompressed = 1 << 16
	flagMarkers    = 1 << 17

	// lineCheck are bytes that a transfer as text changes.
	lineCheck = "\n \r\n"

	methodDeflate = 1

	// markerSize is the length of the header of a compressed grain: its position and length.
	markerSize = 12
	// maxSectors is far more than the 62 TiB VMware makes, and far less than what overflows.
	maxSectors = 1 << 45
	// Grains are of 64 KiB as a rule. A compressed one is in memory as a whole.
	maxGrain, maxPackedGrain = 1 << 30, 2 << 20
	// maxGTEs is how many entries a grain table has, as a rule and at most.
	maxGTEs = 512
)

// header is a sparse extent's.
type header struct {
	disk       int64
	grain      int64
	gtes       int64
	directory  int64 // bytes; -1 if it is at the end of the file
	first      int64 // where data begins
	descriptor int64
	descSize   int64
	zeroGrain  bool
	packed     bool
	markers    bool
}

// parse reads a header from its sector.
func parse(p []byte) (*header, error) {
	le := binary.LittleEndian
	if bytes.HasPrefix(p, []byte("COWD")) {
		return nil, task.Errorf(task.UnsupportedImage, "Invalid format vmdk vmfsSparse for image: make it whole with: vmkfstools -i or qemu-img convert")
	}
	if len(p) < len(magic) {
		return nil, task.Truncated("vmdk header", 0, sector, int64(len(p)))
	}
	if !bytes.HasPrefix(p, []byte(magic)) {
		// Detect has seen text, so this is a descriptor file.
		return nil, descriptorFile(p)
	}
	if len(p) < sector {
		return nil, task.Truncated("vmdk header", 0, sector, int64(len(p)))
	}
	if v := le.Uint32(p[4:]); v < 1 || v > 3 {
		return nil, task.Errorf(task.UnsupportedImage, "Invalid format vmdk version %d for image: 1 to 3 are known", v)
	}
	capacity, grain, gtes := le.Uint64(p[12:]), le.Uint64(p[20:]), le.Uint32(p[44:])
	descriptor, descSize, directory, first := le.Uint64(p[28:]), le.Uint64(p[36:]), le.Uint64(p[56:]), le.Uint64(p[64:])
	if capacity == 0 && descriptor != 0 {
		return nil, task.Errorf(task.UnsafeImage, "vmdk has no data of its own, only a descriptor that names other files, and an import never "+
			"opens another file; make it whole with: qemu-img convert -O vmdk -o subformat=streamOptimized")
	}
	flags := le.Uint32(p[8:])
	if got := p[73:77]; flags&flagLineCheck != 0 && string(got) != lineCheck {
		return nil, task.Errorf(task.BadImage, "vmdk header has %q where %q must be: the file was changed on the way, for example by a transfer as text", got, lineCheck)
	}
	h := &header{
		zeroGrain: flags&flagZeroGrain != 0, packed: flags&flagCompressed != 0, markers: flags&flagMarkers != 0, directory: -1,
	}
	if method := le.Uint16(p[77:]); h.packed && method != methodDeflate {
		return nil, task.Errorf(task.UnsupportedImage, "vmdk compression %d is unknown, only deflate (1) is known", method)
	}
	limit := uint64(maxGrain)
	if h.packed {
		limit = maxPackedGrain
	}
	if grain == 0 || grain > limit/sector || grain&(grain-1) != 0 || gtes == 0 || gtes > maxGTEs {
		return nil, task.Errorf(task.BadImage, "vmdk has grains of %d sectors and grain tables of %d entries: a grain must be a power of two up to "+
			"%d bytes, a table at most %d entries", grain, gtes, limit, maxGTEs)
	}
	if capacity > maxSectors || descriptor > maxSectors || descSize > maxSectors || first > maxSectors ||
		directory > maxSectors && directory != atEnd {
		return nil, task.Errorf(task.BadImage, "vmdk has sizes beyond any file: capacity %d, descriptor %d+%d, directory %d, data %d sectors",
			capacity, descriptor, descSize, directory, first)
	}
	if directory != atEnd {
		h.directory = int64(directory) * sector
	}
	h.disk, h.grain, h.gtes, h.first = int64(capacity)*sector, int64(grain)*sector, int64(gtes), int64(first)*sector
	h.descriptor, h.descSize = int64(descriptor)*sector, int64(descSize)*sector
	return h, nil
}

// reach returns how much of the disk one grain table describes.
func (h *header) reach() int64 { return h.grain * h.gtes }

// directorySize returns how many bytes of the grain directory the disk needs.
func (h *header) directorySize() int64 { return (h.disk + h.reach() - 1) / h.reach() * 4 }

// tableSize returns how many bytes of the grain tables from guest on the disk needs, up to n.
func (h *header) tableSize(guest, n int64) int64 {
	return min(n, (h.disk-guest+h.grain-1)/h.grain*4)
}

// shape returns what all extents have in common. How long a compressed grain is, only the grain itself says.
func (h *header) shape(size int64) extent.Shape {
	return extent.Shape{Disk: h.disk, File: size, Unit: h.grain, Coding: extent.Zlib, Loose: true}
}

// grains emits the extents of a piece of grain tables that describe the disk from guest on.
func (h *header) grains(guest int64, p []byte, emit func(extent.Extent) error) error {
	for ; len(p) >= 4 && guest < h.disk; p, guest = p[4:], guest+h.grain {
		at := int64(binary.LittleEndian.Uint32(p)) * sector
		if at == 0 || at == sector && h.zeroGrain {
			continue
		}
		n := min(h.grain, h.disk-guest)
		e := extent.Extent{Host: at, Stored: n, Guest: guest, Size: n}
		if h.packed {
			e.Coding, e.Stored = extent.Zlib, 2*h.grain
			if h.markers {
				e.Host += markerSize
				e.Stored -= markerSize
			}
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}

// run is a run of grain tables that lie side by side, as they do in most files that were not streamed.
type run struct{ off, n, guest int64 }

// tables goes through a piece of the grain directory that begins at byte at of it.
func (h *header) tables(at int64, p []byte, do func(r run) error) error {
	var r run
	flush := func() error {
		if r.n = h.tableSize(r.guest, r.n); r.n <= 0 {
			return nil
		}
		return do(r)
	}
	for i := at / 4; len(p) >= 4; i, p = i+1, p[4:] {
		off := int64(binary.LittleEndian.Uint32(p)) * sector
		if off == 0 {
			continue
		}
		guest := i * h.reach()
		if r.n > 0 && off == r.off+r.n && guest == r.guest+r.n/4*h.grain && r.n < extent.TablePiece {
			r.n += h.gtes * 4
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		r = run{off, h.gtes * 4, guest}
	}
	return flush()
}
