package chain

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// stride is the alignment of each file in the blob, so that large reads are aligned in the file as they are in the blob.
const stride = 4 << 20

// MaxLinks is how many files a chain has at most. Each needs its header and tables read before the first byte is copied.
const MaxLinks = 256

// place is the position of a link in the blob.
type place struct {
	Link
	at, size int64
}

// end returns the end of the link's file in the blob.
func (p place) end() int64 { return p.at + p.size }

// arrange puts the links into the blob, the newest first.
func arrange(oldestFirst []Link) ([]place, error) {
	if n := len(oldestFirst); n == 0 || n > MaxLinks {
		return nil, task.Errorf(task.BadTask, "a chain has 1 to %d files, not %d", MaxLinks, n)
	}
	var places []place
	at := int64(0)
	for i := len(oldestFirst) - 1; i >= 0; i-- {
		l := oldestFirst[i]
		info := l.Blob.Info()
		if !info.Ranged || info.Size < 0 {
			return nil, task.Errorf(task.UnsupportedImage, "%s cannot be read in parts, as the files of a chain must be: its server has no ranges", l.Name)
		}
		if info.Size > 1<<56 {
			return nil, task.Errorf(task.BadImage, "%s says that it has %d bytes", l.Name, info.Size)
		}
		places = append(places, place{Link: l, at: at, size: info.Size})
		at = (at + info.Size + stride - 1) / stride * stride
	}
	return places, nil
}

// Info implements source.Blob. Its version is made from those of every file.
func (c *Chain) Info() source.Info { return c.info }

// Close implements source.Blob. It closes all files.
func (c *Chain) Close() error {
	var errs []error
	for _, p := range c.places {
		errs = append(errs, p.Blob.Close())
	}
	return errors.Join(errs...)
}

// Open implements source.Blob. What lies between two files reads as zeroes.
func (c *Chain) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := c.info.Span(off, n)
	if err != nil {
		return nil, err
	}
	return &reader{c: c, ctx: ctx, at: off, end: off + n}, nil
}

// reader reads [at, end) of the blob, one file after the other.
type reader struct {
	c       *Chain
	ctx     context.Context
	at, end int64
	open    io.ReadCloser // nil between two files
	until   int64         // where what is open ends
}

func (r *reader) Read(p []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	if r.open == nil {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n, err := r.open.Read(p[:min(int64(len(p)), r.until-r.at)])
	r.at += int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case r.at == r.until:
		return n, r.Close()
	case err != nil:
		return n, fmt.Errorf("read the chain at byte %d: %w", r.at, io.ErrUnexpectedEOF)
	}
	return n, nil
}

// next opens what is at r.at.
func (r *reader) next() error {
	for i, p := range r.c.places {
		if r.at < p.end() {
			r.until = min(r.end, p.end())
			var err error
			r.open, err = p.Blob.Open(r.ctx, r.at-p.at, r.until-r.at)
			return err
		}
		if i+1 < len(r.c.places) && r.at < r.c.places[i+1].at {
			r.until = min(r.end, r.c.places[i+1].at)
			r.open = io.NopCloser(zeroes{})
			return nil
		}
	}
	return fmt.Errorf("read the chain at byte %d: %w", r.at, io.ErrUnexpectedEOF)
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.open == nil {
		return nil
	}
	err := r.open.Close()
	r.open = nil
	return err
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
