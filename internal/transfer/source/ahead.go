package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// AheadOptions bound what an Ahead has in flight: Fetchers ranges of Chunk bytes each, and as much memory.
type AheadOptions struct {
	Fetchers int // 0: 4
	Chunk    int // 0: 4 MiB
}

// step is how much of a chunk is read before the consumer is notified.
const step = 256 << 10

// Ahead reads a blob in order while it fetches what comes next, over several connections if the blob is ranged. It is
// an io.ReadCloser; Next hands the bytes out without copying. Not for concurrent use, except that Close may come from
// anywhere. Bytes before an error are handed over first; the first error, in the order of the bytes, ends it.
type Ahead struct {
	blob   Blob
	info   Info
	chunk  int64
	off    int64
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	moved sync.Cond // something below changed
	slots []slot    // chunk i lives in slots[i%len(slots)] from its fetch until it is consumed
	next  int64     // the first chunk that is not being fetched yet
	head  int64     // the chunk being consumed
	taken int       // how much of it is
	stop  bool      // closed, or a fetch ended in an error: start no further ones
}

// slot is the place of one chunk.
type slot struct {
	buf  []byte
	n    int   // bytes that are there
	done bool  // no more will come
	err  error // why, if not at the chunk's regular end; io.EOF at the end of the blob
}

// NewAhead starts reading b at off. A blob that is not ranged is read over its one connection, from 0 unless it resumes.
func NewAhead(ctx context.Context, b Blob, off int64, o AheadOptions) (*Ahead, error) {
	info := b.Info()
	if off < 0 || info.Ranged && off > info.Size || !info.Ranged && !info.Resumes && off != 0 {
		return nil, fmt.Errorf("read %s from %d of %d bytes: out of range", info.Name, off, info.Size)
	}
	if o.Fetchers <= 0 {
		o.Fetchers = 4
	}
	if o.Chunk <= 0 {
		o.Chunk = 4 << 20
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &Ahead{blob: b, info: info, chunk: int64(o.Chunk), off: off, cancel: cancel, slots: make([]slot, o.Fetchers)}
	a.moved.L = &a.mu
	if !info.Ranged {
		a.work.Go(func() { a.pump(ctx) })
		return a, nil
	}
	for range o.Fetchers {
		a.work.Go(func() { a.fetch(ctx) })
	}
	return a, nil
}

// claim waits for a free slot and returns the number of the chunk that goes there; ok is false when there is no more
// to do.
func (a *Ahead) claim() (i int64, s *slot, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.stop && a.next-a.head >= int64(len(a.slots)) {
		a.moved.Wait()
	}
	if a.stop {
		return 0, nil, false
	}
	i = a.next
	a.next++
	s = &a.slots[i%int64(len(a.slots))]
	if s.buf == nil {
		s.buf = make([]byte, a.bufSize())
	}
	s.n, s.done, s.err = 0, false, nil
	return i, s, true
}

// bufSize returns a chunk, or less if the whole rest is.
func (a *Ahead) bufSize() int64 {
	if a.info.Size >= 0 && a.info.Size-a.off < a.chunk {
		return a.info.Size - a.off
	}
	return a.chunk
}

// fetch brings one chunk after another, each with a range of its own.
func (a *Ahead) fetch(ctx context.Context) {
	for {
		i, s, ok := a.claim()
		if !ok {
			return
		}
		from := a.off + i*a.chunk
		n := min(a.chunk, a.info.Size-from)
		if n <= 0 {
			a.end(s, io.EOF)
			return
		}
		r, err := a.blob.Open(ctx, from, n)
		if err == nil {
			err = a.fill(s, r, int(n))
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("read %s: %w", a.info.Name, io.ErrUnexpectedEOF) // the blob broke its contract
			}
			_ = r.Close() // the bytes are here, or err says why not
		}
		a.end(s, err)
	}
}

// pump brings one chunk after another from a single stream.
func (a *Ahead) pump(ctx context.Context) {
	r, err := a.blob.Open(ctx, a.off, -1)
	for {
		_, s, ok := a.claim()
		if !ok {
			break
		}
		if err == nil {
			err = a.fill(s, r, len(s.buf))
			if len(s.buf) == 0 {
				err = io.EOF
			}
		}
		a.end(s, err)
	}
	if r != nil {
		_ = r.Close() // read to its end, or abandoned on purpose
	}
}

// fill reads n bytes into s, showing them as they come.
func (a *Ahead) fill(s *slot, r io.Reader, n int) error {
	for at := 0; at < n; {
		got, err := r.Read(s.buf[at:min(n, at+step)])
		at += got
		a.mu.Lock()
		s.n = at
		a.mu.Unlock()
		a.moved.Broadcast()
		if err != nil && at < n {
			return err
		}
	}
	return nil
}

// end records that no more data comes into s. After an error no further fetches are started.
func (a *Ahead) end(s *slot, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.done, s.err = true, err
	a.stop = a.stop || err != nil
	a.moved.Broadcast()
}

// Next returns the next bytes, at least one and at most as many as are there, valid until the next call of Next or
// Read. The end is io.EOF.
func (a *Ahead) Next() ([]byte, error) { return a.take(int(a.chunk)) }

func (a *Ahead) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b, err := a.take(len(p))
	return copy(p, b), err
}

func (a *Ahead) take(limit int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		s := &a.slots[a.head%int64(len(a.slots))]
		mine := a.head < a.next
		switch {
		case mine && s.n > a.taken:
			p := s.buf[a.taken:min(s.n, a.taken+limit)]
			a.taken += len(p)
			return p, nil
		case mine && s.done && s.err != nil:
			return nil, s.err
		case mine && s.done:
			a.head++
			a.taken = 0
			a.moved.Broadcast()
		case a.stop && !mine:
			return nil, fmt.Errorf("read %s: %w", a.info.Name, io.ErrClosedPipe)
		default:
			a.moved.Wait()
		}
	}
}

// Close ends all fetches and waits until none is left. It does not close the blob.
func (a *Ahead) Close() error {
	a.cancel()
	a.mu.Lock()
	a.stop = true
	a.mu.Unlock()
	a.moved.Broadcast()
	a.work.Wait()
	return nil
}
