package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Blob is b with p's patience: opening is tried again, and so is reading if b is ranged. Closing it closes b.
func Blob(b source.Blob, p Policy) source.Blob { return &blob{Blob: b, policy: p} }

type blob struct {
	source.Blob
	policy Policy
}

func (b *blob) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	info := b.Info()
	if n < 0 && info.Ranged && off >= 0 && off <= info.Size {
		n = info.Size - off // so that an early end shows
	}
	r := &reader{ctx: ctx, blob: b.Blob, info: info, policy: b.policy, off: off, left: n}
	if err := b.policy.Do(ctx, func(context.Context) error { return r.open() }); err != nil {
		return nil, err
	}
	return r, nil
}

var errStalled = errors.New("stalled")

// reader reads [off, off+left) of a blob, through as many connections as it takes.
type reader struct {
	ctx    context.Context
	blob   source.Blob
	info   source.Info
	policy Policy

	off    int64
	left   int64 // negative: to the end
	tries  int   // since the last progress
	gained int64 // bytes since the count of tries was zero

	body   io.ReadCloser // nil between connections
	try    context.Context
	cancel context.CancelCauseFunc
	watch  *time.Timer // runs while a call waits for the network, never while the consumer thinks
	err    error       // came with bytes that had to be handed over first, or ended the reader
}

// open makes one try at a connection for what is left.
func (r *reader) open() error {
	r.try, r.cancel = context.WithCancelCause(r.ctx)
	cancel := r.cancel
	r.watch = time.AfterFunc(r.policy.Idle, func() { cancel(errStalled) })
	body, err := r.blob.Open(r.try, r.off, r.left)
	r.watch.Stop()
	if err != nil {
		err = r.explain(err)
		r.cancel(nil)
		return err
	}
	r.body = body
	return nil
}

// explain tells a stalled connection from one that the caller gave up, whatever the error of the closed socket says.
func (r *reader) explain(err error) error {
	if r.ctx.Err() != nil {
		return fmt.Errorf("read %s: %w", r.info.Name, r.ctx.Err())
	}
	if errors.Is(context.Cause(r.try), errStalled) {
		return task.Errorf(task.SourceUnreachable, "%s sent nothing for %s: the connection counts as dead", r.info.Name,
			r.policy.Idle)
	}
	return err
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if r.err != nil {
			if err := r.again(); err != nil {
				return 0, err
			}
		}
		r.watch.Reset(r.policy.Idle)
		n, err := r.body.Read(p)
		r.watch.Stop()
		if err == nil && context.Cause(r.try) != nil && n == 0 {
			err = context.Cause(r.try) // a reader that swallows its cancellation must not spin here
		}
		r.count(int64(n))
		if err != nil {
			r.err = err
			if !errors.Is(err, io.EOF) {
				r.err = r.explain(err)
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (r *reader) count(n int64) {
	r.off += n
	if r.left > 0 {
		r.left -= n
	}
	if r.gained += n; r.gained >= progress {
		r.gained, r.tries = 0, 0
	}
}

// again deals with r.err: it returns it if that is the end, or leaves a new connection behind.
func (r *reader) again() error {
	if r.body != nil {
		_ = r.body.Close() // it broke or is at its end: closing has nothing to add
		r.body = nil
		r.cancel(nil)
	}
	if r.left == 0 && Worth(r.err) {
		r.err = io.EOF // every byte came before the connection broke
	}
	for {
		if errors.Is(r.err, io.EOF) && r.left > 0 {
			r.err = task.Errorf(task.SourceTruncated, "%s ended %d bytes early: %w", r.info.Name, r.left, io.ErrUnexpectedEOF)
		}
		if errors.Is(r.err, io.EOF) || !r.info.Ranged || !Worth(r.err) || r.ctx.Err() != nil {
			return r.err
		}
		if r.tries++; r.tries >= r.policy.Attempts || !r.policy.pause(r.ctx, r.tries, r.err) {
			return r.err
		}
		err := r.open()
		if err == nil {
			r.err = nil
			return nil
		}
		r.err = err
	}
}

func (r *reader) Close() error {
	r.err = fmt.Errorf("read %s: %w", r.info.Name, io.ErrClosedPipe)
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	r.cancel(nil)
	return err
}
