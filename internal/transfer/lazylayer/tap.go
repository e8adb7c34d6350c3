package lazylayer

import (
	"bufio"
	"context"
	"io"
	"sync"

	"github.com/berth-vm/berth/internal/transfer/source"
)

// sharedInput is a decoder's input. Decoders read ahead on a goroutine of their own, which may be in the middle of a read when
// its decoder is closed: the input can then be read by others, and closed, as if that goroutine did not exist.
type sharedInput struct {
	cancel context.CancelFunc

	mu     sync.Mutex // held while something is read
	in     io.Reader
	raw    io.Closer
	closed bool
}

// openTap reads a blob from an offset on, and writes all bytes that it reads to h.
func openTap(ctx context.Context, b source.Blob, from int64, h io.Writer) (*sharedInput, error) {
	ctx, cancel := context.WithCancel(ctx)
	raw, err := b.Open(ctx, from, -1)
	if err != nil {
		cancel()
		return nil, err
	}
	return &sharedInput{cancel: cancel, in: bufio.NewReaderSize(io.TeeReader(raw, h), 256<<10), raw: raw}, nil
}

// Read implements io.Reader.
func (t *sharedInput) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, io.ErrClosedPipe
	}
	return t.in.Read(p)
}

// Close ends a read that is under way, and waits for it.
func (t *sharedInput) Close() {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	_ = t.raw.Close() // it was read to its end, or is left in the middle
}
