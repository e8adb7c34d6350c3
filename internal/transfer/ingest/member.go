package ingest

import (
	"context"
	"errors"
	"io"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// plainMember reports whether the image is a file in an archive that is not compressed, so that it can be read anywhere, and
// there is no other disk behind it. That is found out before the first byte is brought: once a guest uses the disk it would be
// too late to refuse it.
func (i *importing) plainMember(ctx context.Context, archive extent.File) (bool, error) {
	head := make([]byte, min(decode.HeadSize, archive.Size))
	if _, err := archive.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if decode.Detect(head) != decode.None {
		i.fill().Unserved("the layer that it is in is compressed, so that it can only be read in order")
		return false, nil
	}
	m := i.info.Member
	if m.Rest == nil {
		return true, nil
	}
	r, err := i.blob.Open(ctx, m.Offset+m.Size, -1)
	if err != nil {
		return false, err
	}
	defer r.Close() // read to its end, or err says why not
	return true, m.Rest(r)
}

// memberImage is an image that begins somewhere in its archive. The places of its extents are the archive's, whose every byte is
// fetched and counted: its digest is over all of it.
type memberImage struct {
	format.Image
	offset, size int64
}

// Extents implements format.Image.
func (m *memberImage) Extents(ctx context.Context, from, to int64) ([]format.Extent, error) {
	from, to = max(from-m.offset, 0), min(to-m.offset, m.size)
	if from >= to {
		return nil, nil
	}
	es, err := m.Image.Extents(ctx, from, to)
	if err != nil {
		return nil, err
	}
	out := make([]format.Extent, len(es))
	for i, e := range es {
		e.Host += m.offset
		out[i] = e
	}
	return out, nil
}
