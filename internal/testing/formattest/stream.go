package formattest

import (
	"context"
	"errors"
	"io"

	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Stream makes the disk of an image that comes in chunks of the given size. After every crash chunks, if that is not 0, the
// decoder is thrown away and another one continues from its state.
func Stream(ctx context.Context, kind format.Kind, f extent.File, chunk int64, crash int) (*Memory, error) {
	out := &Memory{}
	d, err := format.NewDecoder(kind, out)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, min(chunk, f.Size))
	crashed := int64(-1) // where it went on after the last crash: without progress there is no other one
	for at, i := int64(0), 1; at < f.Size; i++ {
		n, err := f.ReadAt(buf[:min(chunk, f.Size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if _, err := d.Write(buf[:n]); err != nil {
			return nil, err
		}
		at += int64(n)
		if state := d.State(); crash > 0 && i%crash == 0 && state != nil && d.Offset() > crashed {
			at = d.Offset()
			crashed = at
			out = out.Again(d.Parked())
			if d, err = format.Resume(state, out); err != nil {
				return nil, err
			}
		}
	}
	size, err := d.Finish(ctx)
	if err != nil {
		return nil, err
	}
	if out.Disk.Size < 0 {
		out.Disk.cut(size)
	}
	return out, nil
}
