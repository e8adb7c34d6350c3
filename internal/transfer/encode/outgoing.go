// Package encode writes a disk in the formats of downloads: as a qcow2 image, or compressed. Both are made while the disk is read;
// ranges without data are neither read nor sent.
//
// It does not know the reader, nor where the disk is; its caller says where there may be data.
package encode

import (
	"context"
	"io"
)

// Disk is the disk to write. Its bytes must not change meanwhile.
type Disk struct {
	io.ReaderAt
	Size int64
	// Data says where in [from, to) there may be anything but zeroes, as offset and length, in order.
	Data func(ctx context.Context, from, to int64) ([][2]int64, error)
	// Below is set if only the changes since an earlier image of the disk are written.
	Below *Below
}

// Below is the image that an increment lies over.
type Below struct {
	// Name is the file name of that image, from where the increment is, as programs look for it that open the increment.
	Name string
	// Changed says where in [from, to) the disk may differ from that image, as Data does.
	Changed func(ctx context.Context, from, to int64) ([][2]int64, error)
}

// window bounds the list of extents that is in memory.
const window = 256 << 20
