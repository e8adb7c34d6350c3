package ingest

import (
	"context"

	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// sparseImage is a raw disk at a source that knows where it is zero.
type sparseImage struct {
	format.Image
	blob source.Sparse
}

// Granule implements format.Image: a filesystem has far fewer extents than blocks.
func (s *sparseImage) Granule() int64 { return 64 << 10 }

// Extents implements format.Image.
func (s *sparseImage) Extents(ctx context.Context, from, to int64) ([]format.Extent, error) {
	data, err := s.blob.Data(ctx, from, min(to, s.Size()))
	if err != nil {
		return nil, err
	}
	if len(data) > extent.MaxExtents {
		return nil, extent.ErrCrowded
	}
	es := make([]format.Extent, len(data))
	for i, d := range data {
		es[i] = format.Extent{Host: d[0], Stored: d[1], Guest: d[0], Size: d[1]}
	}
	return es, nil
}
