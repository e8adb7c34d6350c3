// Package raw is the format that is none: the bytes of the file are the bytes of the disk, ISO images among them. It
// looks at no byte.
package raw

import (
	"context"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Image is a raw disk, or the part of a file that is one.
type Image struct{ size int64 }

// Open makes the image of a whole file.
func Open(f extent.File) Image { return Prefix(f.Size) }

// Prefix makes the image of a file whose first size bytes are the disk.
func Prefix(size int64) Image { return Image{size} }

// Size implements extent.Image.
func (m Image) Size() int64 { return m.size }

// Granule implements extent.Image.
func (m Image) Granule() int64 { return max(m.size, 1) }

// Extents implements extent.Image.
func (m Image) Extents(_ context.Context, from, to int64) ([]extent.Extent, error) {
	from, to = max(from, 0), min(to, m.size)
	if from >= to {
		return nil, nil
	}
	return []extent.Extent{{Host: from, Stored: to - from, Guest: from, Size: to - from}}, nil
}
