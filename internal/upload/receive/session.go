package receive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// session is one tus upload as long as this process lives: a transfer that reads from whichever request brings the next bytes.
// Between requests it waits where it is, whatever the format. It is the transfer's blob: where the transfer opens it, because of
// what an earlier worker left at the target, is where the client has to continue.
type session struct {
	id     tus.ID
	cancel context.CancelCauseFunc
	pieces chan *piece
	opened chan struct{} // closed when the transfer said where it begins
	done   chan struct{} // closed when the transfer is over
	report task.Report   // valid after done

	mu    sync.Mutex // guards what follows
	at    int64      // of the file: what comes next
	end   func()     // ends the last reader
	opens int
}

// rawSession is a session whose sender says that its bytes are the disk.
type rawSession struct{ *session }

// start begins the transfer of an upload.
func (s *Server) start(id tus.ID) *session {
	ctx, cancel := context.WithCancelCause(s.ctx)
	one := &session{
		id: id, cancel: cancel, pieces: make(chan *piece), opened: make(chan struct{}), done: make(chan struct{}),
	}
	var blob source.Blob = one
	if id.Raw {
		blob = rawSession{one}
	}
	work := s.begin()
	s.mu.Lock()
	s.session = one
	s.mu.Unlock()
	go func() {
		defer cancel(nil)
		one.report = work.RunFrom(ctx, blob)
		one.report.Upload = id.String()
		s.finish(one.report)
		close(one.done)
	}()
	return one
}

// drop gives up the session there is, if any. The turn is held.
func (s *Server) drop() {
	s.mu.Lock()
	old := s.session
	s.mu.Unlock()
	if old != nil {
		old.cancel(errReplaced)
		<-old.done
	}
}

// position returns the offset of the upload, once that is known.
func (u *session) position(ctx context.Context) (int64, error) {
	select {
	case <-u.done:
	case <-u.opened:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.done:
		if u.report.Outcome == task.Done {
			return u.id.Length, nil // all of it, even if an earlier worker did it and this one only found out
		}
	default:
	}
	return u.at, nil
}

// Info implements source.Blob.
func (u *session) Info() source.Info {
	return source.Info{Name: "the upload", Size: u.id.Length, Resumes: true, Version: u.id.String()}
}

// Close implements source.Blob.
func (u *session) Close() error { return nil }

// Open implements source.Blob.
func (u *session) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if n >= 0 {
		return nil, fmt.Errorf("read %d bytes of the upload: it is a stream", n)
	}
	return u.open(ctx, off)
}

// OpenRuns implements source.Runs.
func (u rawSession) OpenRuns(ctx context.Context, off int64) (source.RunReader, error) {
	return u.open(ctx, off)
}

func (u *session) open(ctx context.Context, off int64) (*reader, error) {
	if off < 0 || off > u.id.Length {
		return nil, fmt.Errorf("read the upload from %d: it has %d bytes", off, u.id.Length)
	}
	ctx, end := context.WithCancel(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.end != nil {
		u.end() // what was opened before
	}
	u.end, u.at = end, off
	if u.opens++; u.opens == 1 {
		close(u.opened)
	}
	return &reader{session: u, ctx: ctx, end: end, at: off}, nil
}

// reader reads the upload in order, from one piece after the other.
type reader struct {
	*session
	ctx   context.Context
	end   func()
	at    int64
	piece *piece
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, _, err := r.from(func(c *piece) (int, int64, error) {
		n, err := c.r.Read(p)
		return n, 0, err
	})
	return n, err
}

// Next implements source.RunReader.
func (r *reader) Next(p []byte) (int, int64, error) {
	return r.from(func(c *piece) (int, int64, error) {
		if frames, ok := c.r.(*peerproto.Reader); ok {
			return frames.Next(p)
		}
		n, err := c.r.Read(p)
		return n, 0, err
	})
}

// from reads from the piece there is, or waits for one. That a piece ends is no error: another continues where it ended.
func (r *reader) from(read func(*piece) (int, int64, error)) (int, int64, error) {
	for r.at < r.id.Length {
		if r.piece == nil {
			select {
			case r.piece = <-r.pieces:
			case <-r.ctx.Done():
				return 0, 0, context.Cause(r.ctx)
			}
		}
		n, zeroes, err := read(r.piece)
		r.moved(int64(n) + zeroes)
		if err != nil || r.at == r.id.Length {
			r.piece.over(err)
			r.piece = nil
		}
		if n > 0 || zeroes > 0 {
			return n, zeroes, nil
		}
	}
	return 0, 0, io.EOF
}

func (r *reader) moved(n int64) {
	r.at += n
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() == nil {
		r.session.at = r.at
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.end()
	if r.piece != nil {
		r.piece.over(errStopped)
		r.piece = nil
	}
	return nil
}

var errStopped = errors.New("the transfer does not read any further")

// piece is the body of one request.
type piece struct {
	r     io.Reader
	ended chan error // gets one
}

func (p *piece) over(err error) { p.ended <- err }

// deliver hands a body over and waits until it is read, or will not be. It returns nil, the error of the body, or errStopped.
func (u *session) deliver(r io.Reader) error {
	p := &piece{r: r, ended: make(chan error, 1)}
	select {
	case u.pieces <- p:
	case <-u.done:
		return errStopped
	}
	select {
	case err := <-p.ended:
		return err
	case <-u.done:
		return errStopped
	}
}
