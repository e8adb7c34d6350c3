package lazylayer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// patience is how the pass retries a registry that does not answer: without an end.
var patience = retry.Policy{Attempts: math.MaxInt, First: time.Second, Max: 15 * time.Second, Idle: time.Minute}

// again is how long the pass waits before it starts again, when the registry answers and refuses the layer.
const again = 30 * time.Second

// yieldTime is how long the pass waits for other fetches, before each piece.
const yieldTime = time.Second

// pass reads the whole layer once, records where a decoder can begin and compares the digest. It returns when the result is known,
// at once if it was known before; the error says that the layer is condemned, or closed. check is called when all bytes are known
// and before the layer counts as verified; its error condemns the layer.
func (l *Layer) pass(check func() error) error {
	if l.State().Proven {
		return nil
	}
	ctx := l.ctx
	for {
		err := l.readAll(ctx)
		if err == nil {
			err = l.conclude(check)
		}
		switch {
		case err == nil, errors.Is(err, ErrCondemned), ctx.Err() != nil:
			return err
		case task.Is(err, task.BadImage), task.Is(err, task.UnsupportedImage), task.Is(err, task.ChecksumMismatch):
			return l.condemn(err)
		}
		l.delayed(err)
		t := time.NewTimer(again)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// conclude makes the layer proven.
func (l *Layer) conclude(check func() error) error {
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	if err := l.condemned; err != nil {
		l.mu.Unlock()
		return err
	}
	l.proven, l.passErr = true, nil
	l.table, l.ends = nil, nil // the index has everything
	l.changed()
	l.mu.Unlock()
	// If this fails the next process makes the pass again.
	_ = l.save()
	return nil
}

// delayed notes why the pass does not continue; nil: it does.
func (l *Layer) delayed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.passErr == nil) != (err == nil) {
		l.passErr = err
		l.changed()
	}
}

func (l *Layer) readAll(ctx context.Context) error {
	select {
	case l.cache.passes <- struct{}{}:
		defer func() { <-l.cache.passes }()
	case <-ctx.Done():
		return ctx.Err()
	}
	h := sha256.New()
	var err error
	if l.kind == decode.None {
		err = l.passPlain(ctx, h)
	} else {
		err = l.passCoded(ctx, h)
	}
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != l.name {
		return task.Errorf(task.ChecksumMismatch, "%s: the digest of the layer is sha256:%s, and should be sha256:%s", l.info.Name, got, l.name)
	}
	return nil
}

// passPlain goes over the same pieces that others read, and lets them go first.
func (l *Layer) passPlain(ctx context.Context, h hash.Hash) error {
	for i := int64(0); i*pieceSize < l.info.Size; i++ {
		if err := l.yield(ctx); err != nil {
			return err
		}
		var b []byte
		p := patience
		p.Told = l.delayed
		err := p.Do(ctx, func(context.Context) (err error) {
			b, err = l.piece(i)
			return err
		})
		if err != nil {
			return err
		}
		h.Write(b)
		l.advance((i + 1) * pieceSize)
	}
	return nil
}

// yield waits while others need a fetch, but not for ever.
func (l *Layer) yield(ctx context.Context) error {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	t := time.NewTimer(yieldTime)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// advance records the progress of the pass.
func (l *Layer) advance(to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passErr = nil
	if to > l.reached {
		l.reached = to
		l.changed()
	}
}

// passCoded decodes the layer from its beginning.
func (l *Layer) passCoded(ctx context.Context, h hash.Hash) error {
	p := patience
	p.Told = l.delayed
	in, err := openTap(ctx, retry.Blob(l.blob, p), 0, h)
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := decode.NewReader(l.kind, in, decode.Options{Every: between(l.info.Size, l.cache.limit)})
	if err != nil {
		return err
	}
	defer r.Close()
	c := &cutter{layer: l, notes: true}
	if err := c.copy(r, math.MaxInt64); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // the digest is of every byte
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.Plain = c.at
	l.reached = c.at
	l.changed()
	return nil
}

// cutter cuts a decoder's output into pieces.
type cutter struct {
	layer *Layer
	notes bool  // of the pass: it adds to the index
	at    int64 // decompressed bytes so far
	skip  int64 // what comes before this is of a piece whose beginning is not there
	piece []byte
	keep  func(i int64, b []byte) // what else to do with a piece, whose memory it may have
}

// copy reads to the end of the layer or to a decompressed byte, and then on to the end of a piece.
func (c *cutter) copy(r decode.Reader, to int64) error {
	for c.at < to {
		if c.notes && len(c.piece) == 0 && c.layer.State().Table { // others need not wait for the pass
			if err := c.layer.yield(c.layer.ctx); err != nil {
				return err
			}
		}
		b, err := r.Next()
		if takeErr := c.take(b); takeErr != nil {
			return takeErr
		}
		if c.notes {
			if s := r.State(); s != nil {
				if err := c.layer.note(s); err != nil {
					return err
				}
			}
			c.layer.advance(c.at / pieceSize * pieceSize)
		}
		if errors.Is(err, io.EOF) {
			return c.flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cutter) take(b []byte) error {
	for len(b) > 0 {
		if c.at < c.skip {
			n := min(int64(len(b)), c.skip-c.at)
			b, c.at = b[n:], c.at+n
			continue
		}
		if c.piece == nil {
			c.piece = make([]byte, 0, pieceSize)
		}
		n := min(len(b), pieceSize-len(c.piece))
		c.piece = append(c.piece, b[:n]...)
		b, c.at = b[n:], c.at+int64(n)
		if len(c.piece) == pieceSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush hands over a piece.
func (c *cutter) flush() error {
	if len(c.piece) == 0 {
		return nil
	}
	i := (c.at - int64(len(c.piece))) / pieceSize
	if err := c.layer.seen(i, c.piece); err != nil {
		return err
	}
	if c.keep != nil {
		c.keep(i, c.piece)
		c.piece = nil
		return nil
	}
	c.piece = c.piece[:0]
	return nil
}

// await waits until the pass has reached a piece, which cannot be read before. It reports whether it had to wait.
func (l *Layer) await(i int64) (waited bool, err error) {
	for ; ; waited = true {
		l.mu.Lock()
		moved, err := l.moved, l.condemned
		there := l.proven || l.index.Plain >= 0 || l.reached >= (i+1)*pieceSize
		if err == nil && !there {
			err = l.passErr
		}
		l.mu.Unlock()
		if err != nil || there {
			return waited, err
		}
		select {
		case <-moved:
		case <-l.ctx.Done():
			return true, l.ctx.Err()
		}
	}
}

// mostHeld is how many pieces one decoder start keeps in memory; the next piece starts again.
const mostHeld = 16

// enter decodes from the last place before piece i until the next place.
func (l *Layer) enter(i int64) (map[int64][]byte, error) {
	s, end, err := l.state(i)
	if err != nil {
		return nil, err
	}
	var in, plain int64 // where it begins, compressed and not
	if s != nil {
		in, plain = s.In, s.Out
	}
	raw, err := openTap(l.ctx, l.blob, in, io.Discard)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r, err := decode.NewReader(l.kind, raw, decode.Options{Resume: s, Every: math.MaxInt64 / 2})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := map[int64][]byte{}
	c := &cutter{layer: l, at: plain, skip: (plain + pieceSize - 1) / pieceSize * pieceSize, keep: func(n int64, b []byte) {
		if n >= i {
			out[n] = b
		}
	}}
	last := (i + mostHeld) * pieceSize
	if end >= 0 {
		last = min(last, (end+pieceSize-1)/pieceSize*pieceSize)
	}
	if err := c.copy(r, last); err != nil {
		return nil, fmt.Errorf("read %s at byte %d: %w", l.info.Name, i*pieceSize, err)
	}
	if _, ok := out[i]; !ok {
		out[i] = nil // behind the end
	}
	return out, nil
}
