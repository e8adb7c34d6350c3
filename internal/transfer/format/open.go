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
