// Package uploadbody makes a source of bytes that come by themselves: the body of an upload. It can be read once, from the
// front. It does not know who sends the bytes or over what.
package uploadbody

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
)

// New returns a blob of r's bytes. size is how many the sender announced, -1 if it did not; name is how messages call it. Closing
// the blob closes r, which is also what unblocks a read when the context of Open ends.
func New(name string, r io.ReadCloser, size int64) source.Blob {
	return &blob{info: source.Info{Name: name, Size: max(size, -1)}, r: r}
}

type blob struct {
	info  source.Info
	r     io.ReadCloser
	taken atomic.Bool
}

func (b *blob) Info() source.Info { return b.info }
func (b *blob) Close() error      { return b.r.Close() }

func (b *blob) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off != 0 || n >= 0 {
		return nil, fmt.Errorf("read %s from %d: it is a stream", b.info.Name, off)
	}
	if b.taken.Swap(true) {
		return nil, fmt.Errorf("read %s: it is a stream and was read already", b.info.Name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = b.r.Close() }) // its error comes out of Read
	return &reader{ReadCloser: fault.Body(b.info.Name, b.r, b.info.Size), ctx: ctx, stop: stop}, nil
}

type reader struct {
	io.ReadCloser
	ctx  context.Context
	stop func() bool
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && r.ctx.Err() != nil {
		err = r.ctx.Err() // the reason why the body was closed under the read
	}
	return n, err
}

func (r *reader) Close() error {
	r.stop()
	return r.ReadCloser.Close()
}
