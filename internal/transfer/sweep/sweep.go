// Package sweep brings an image whose file can be read anywhere onto a disk: it plans which parts of the file are fetched together, and
// several workers fetch them, decode them and write them where they belong.
//
// It does not know formats, which say where the parts of the disk are, nor who made the disk or keeps the notes.
package sweep

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/checksum"
	"github.com/berth-vm/berth/internal/transfer/expand"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/resume"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// sweepers is how many units are under way at a time. Two cores are busy with two; the others wait for the network.
const sweepers = 4

// stepSize is how much of a unit is read before it is written: small enough to stay in the processor's cache.
const stepSize = 512 << 10

// Disk is the part of a disk that a pass needs.
type Disk interface {
	io.WriterAt
	// Tail is the offset from which on the disk is in memory until the end: sink.Checkpoint.
	Tail() int64
}

// Pass is one pass over the file. It goes through the file in the file's own order, whatever the order on the disk, so that a server
// reads sequentially and each byte is fetched once.
type Pass struct {
	Blob  source.Blob
	Size  int64 // of the file
	Image format.Image
	Disk  Disk
	Sum   *checksum.Sum // nil: gaps are not fetched
	Meter *progress.Meter
	// Reached is called with the offset up to which the file is processed; it may be nil.
	Reached func(mark int64)

	mu     sync.Mutex // guards what follows
	moved  sync.Cond
	turn   int64 // the unit that retires next
	mark   int64
	hashed int64
	held   []resume.Held
	err    error
}

// Start takes over what an earlier run did; n is nil if there is nothing to take over. It must be called before Run.
func (s *Pass) Start(ctx context.Context, n *resume.Note) error {
	s.moved.L = &s.mu
	if n == nil {
		return nil
	}
	s.mark, s.hashed, s.held = n.Mark, n.HashAt, n.Held
	if s.Sum != nil {
		if err := s.Sum.Restore(n.Hash); err != nil {
			return fmt.Errorf("continue the checksum: %w", err)
		}
	}
	return s.refetch(ctx)
}

// refetch brings again what the earlier run kept in memory only.
func (s *Pass) refetch(ctx context.Context) error {
	w := s.worker()
	defer w.close()
	for _, h := range s.held {
		u := &unit{from: h.Host, to: h.Host + h.Stored, parts: []format.Extent{h.Extent}}
		sums, err := w.do(ctx, u)
		if err != nil {
			return err
		}
		if s.Sum != nil && (len(sums) != 1 || subtle.ConstantTimeCompare(sums[0].Sum, h.Sum) != 1) {
			return task.Errorf(task.SourceChanged, "%s changed at byte %d since an earlier run read it", s.Blob.Info().Name, h.Host)
		}
	}
	return nil
}

// Mark returns the offset up to which the file was processed by an earlier run. It is called before Run.
func (s *Pass) Mark() int64 { return s.mark }

// Run copies all data from the mark on.
func (s *Pass) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	units := make(chan *unit)
	var work sync.WaitGroup
	for range sweepers {
		work.Go(func() {
			w := s.worker()
			defer w.close()
			for u := range units {
				held, err := w.do(ctx, u)
				if err = s.retire(u, w, held, err); err != nil {
					cancel()
				}
			}
		})
	}
	p := &planner{image: s.Image, size: s.Size, all: s.Sum != nil, tail: s.Disk.Tail(), emit: func(u *unit) error {
		select {
		case units <- u:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	err := p.run(ctx, s.mark, s.hashed)
	close(units)
	if err != nil {
		s.fail(err)
	}
	work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail ends the pass; the first error is the one that counts.
func (s *Pass) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.moved.Broadcast()
}

// retire waits for the units before u, then counts u as done.
func (s *Pass) retire(u *unit, w *sweeper, held []resume.Held, err error) error {
	if err != nil {
		s.fail(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.turn != u.number && s.err == nil {
		s.moved.Wait()
	}
	if s.turn != u.number {
		return s.err // a unit before failed, so this one does not count; had it been ours, it would still
	}
	if s.Sum != nil && u.hashed < u.to {
		s.Sum.Write(w.bytes(u, max(u.hashed, u.from), u.to)) // a hash never fails
		s.hashed = u.to
	}
	s.held = append(s.held, held...)
	s.mark = u.mark
	s.turn++
	s.Meter.Reached(u.mark)
	if s.Reached != nil {
		s.Reached(u.mark)
	}
	s.moved.Broadcast()
	return nil
}

// Claim fills in a note with what is done.
func (s *Pass) Claim(n *resume.Note) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Mark, n.HashAt, n.Held = s.mark, s.hashed, append([]resume.Held(nil), s.held...)
	if s.Sum == nil {
		return nil
	}
	var err error
	n.Hash, err = s.Sum.Save()
	return err
}

// sweeper is one worker and its memory.
type sweeper struct {
	*Pass
	x    *expand.Expander
	buf  []byte // a unit, as far from a page boundary as it is in the file, so that O_DIRECT needs no copy
	open stretch
}

// stretchSize is how many decoded bytes are gathered before they are written: an image's clusters are small, and mostly in the
// order of the disk.
const stretchSize = 512 << 10

// stretch is decoded bytes that belong together on the disk and are not written yet.
type stretch struct {
	buf []byte
	at  int64 // on the disk
	n   int64
}

func (s *Pass) worker() *sweeper {
	return &sweeper{Pass: s, x: expand.New(), buf: make([]byte, unitSize+zeropage.Size), open: stretch{buf: make([]byte, stretchSize)}}
}

func (w *sweeper) close() { w.x.Close() }

// bytes is [from, to) of the file, which is in u.
func (w *sweeper) bytes(u *unit, from, to int64) []byte {
	shift := u.from % zeropage.Size
	return w.buf[from-u.from+shift : to-u.from+shift]
}

// do fetches u and puts its parts where they belong. It returns those that are held in memory.
func (w *sweeper) do(ctx context.Context, u *unit) ([]resume.Held, error) {
	if u.from == u.to {
		return nil, nil
	}
	r, err := w.Blob.Open(ctx, u.from, u.to-u.from)
	if err != nil {
		return nil, err
	}
	defer r.Close() // the bytes are here, or err says why not
	in := &incoming{r: r, u: u, w: w, at: u.from}
	var kept []resume.Held
	for _, e := range u.parts {
		if err := w.put(in, e); err != nil {
			return nil, err
		}
		if e.Guest+e.Size > w.Disk.Tail() {
			h := resume.Held{Extent: e}
			if w.Sum != nil {
				sum := sha256.Sum256(w.bytes(u, e.Host, e.Host+e.Stored))
				h.Sum = sum[:]
			}
			kept = append(kept, h)
		}
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	return kept, in.until(u.to)
}

// put writes one part, in steps as it comes in.
func (w *sweeper) put(in *incoming, e format.Extent) error {
	if e.Size == 0 {
		return nil
	}
	end := e.Host + e.Stored
	if e.Coding != format.Plain {
		if err := in.until(end); err != nil {
			return err
		}
		return w.gather(e, w.bytes(in.u, e.Host, end))
	}
	for at := e.Host; at < end; {
		next := min(end, (at/stepSize+1)*stepSize)
		if err := in.until(next); err != nil {
			return err
		}
		if _, err := w.Disk.WriteAt(w.bytes(in.u, at, next), e.Guest+at-e.Host); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// gather decodes a part behind the one before it, if it belongs there on the disk too.
func (w *sweeper) gather(e format.Extent, p []byte) error {
	if w.open.at+w.open.n != e.Guest || w.open.n+e.Size > stretchSize {
		if err := w.flush(); err != nil {
			return err
		}
		w.open.at = e.Guest
	}
	if e.Size > stretchSize {
		out, err := w.x.Expand(e, p)
		if err != nil {
			return err
		}
		_, err = w.Disk.WriteAt(out, e.Guest)
		return err
	}
	if err := w.x.Into(w.open.buf[w.open.n:w.open.n+e.Size], e, p); err != nil {
		return err
	}
	w.open.n += e.Size
	return nil
}

// flush writes what was gathered.
func (w *sweeper) flush() error {
	p := w.open.buf[:w.open.n]
	w.open.n = 0
	if len(p) == 0 {
		return nil
	}
	_, err := w.Disk.WriteAt(p, w.open.at)
	return err
}

// incoming is a unit on its way in.
type incoming struct {
	r  io.Reader
	u  *unit
	w  *sweeper
	at int64 // of the file; everything before is in the buffer
}

// until waits for the bytes before to. It takes what has come in behind them too: a compressed cluster is small, and a read
// for each would cost a system call for each.
func (in *incoming) until(to int64) error {
	if to <= in.at {
		return nil
	}
	n, err := io.ReadAtLeast(in.r, in.w.bytes(in.u, in.at, min(in.u.to, max(to, in.at+stepSize))), int(to-in.at))
	in.at += int64(n)
	in.w.Meter.Fetched(int64(n))
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return task.Errorf(task.SourceTruncated, "%s ended at byte %d, before the %d bytes it announced: %w", in.w.Blob.Info().Name, in.at, in.w.Size, err)
	}
	return err
}
