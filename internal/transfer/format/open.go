package format

import (
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/qcow2"
	"github.com/berth-vm/berth/internal/transfer/format/raw"
	"github.com/berth-vm/berth/internal/transfer/format/vdi"
	"github.com/berth-vm/berth/internal/transfer/format/vhd"
	"github.com/berth-vm/berth/internal/transfer/format/vhdx"
	"github.com/berth-vm/berth/internal/transfer/format/vmdk"
)

// Disk is an image that is read at random; only the tables that an answer needs are read.
type Disk interface {
	Size() int64
	// In returns the extents that have bytes of [from, to) of the disk, in its order. Plain ones are cut to it, coded ones are whole.
	In(from, to int64) ([]Extent, error)
}

// OpenDisk is Open for random access. It returns nil for formats that can only be read in the order of their file.
func OpenDisk(kind Kind, r io.ReaderAt, size int64) (Disk, error) {
	if kind != QCOW2 {
		return nil, nil
	}
	return qcow2.OpenDisk(extent.File{ReaderAt: r, Size: size})
}

// Layer is an image that may lie over another, and is read without it. Only qcow2 has such.
type Layer = qcow2.Layer

// OpenLayer reads the header of an image that may lie over another.
func OpenLayer(r io.ReaderAt, size int64) (*Layer, error) {
	return qcow2.OpenLayer(extent.File{ReaderAt: r, Size: size})
}

// Open reads the header of an image whose file of size bytes can be read anywhere. It reads tables only when Extents
// is called. r must allow concurrent reads; its errors pass through unchanged.
func Open(kind Kind, r io.ReaderAt, size int64) (Image, error) {
	f := extent.File{ReaderAt: r, Size: size}
	switch kind {
	case Raw, Unsigned:
		return raw.Open(f), nil
	case QCOW2:
		return qcow2.Open(f)
	case VHD:
		return vhd.Open(f)
	case VMDK:
		return vmdk.Open(f)
	case VDI:
		return vdi.Open(f)
	case VHDX:
		return vhdx.Open(f)
	}
	return nil, task.Errorf(task.UnsupportedImage, "Invalid format %s for image", kind)
}
