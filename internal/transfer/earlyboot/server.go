package earlyboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Server serves a disk to its guest.
type Server struct {
	l    net.Listener
	disk nbd.Disk
	work sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	ending bool
	bye    time.Time     // when the last client may be missed permanently: at once if it said goodbye
	moved  chan struct{} // closed and made again whenever a client has come or gone
}

// comesBack is for how long a client that disconnected without a farewell may reconnect: QEMU tries every 16 s at the latest.
const comesBack = 30 * time.Second

// Serve serves d on a socket. A client is missed from the beginning if there was one before.
func Serve(path string, d nbd.Disk, before bool) (*Server, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("serve the disk: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve the disk: %w", err)
	}
	s := &Server{l: l, disk: d, conns: map[net.Conn]bool{}, moved: make(chan struct{})}
	if before {
		s.bye = time.Now().Add(comesBack)
	}
	s.work.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return // it was closed
		}
		if !s.enter(c) {
			_ = c.Close()
			return
		}
		s.work.Go(func() {
			err := nbd.Answer(c, s.disk)
			_ = c.Close()
			s.leave(c, err == nil)
		})
	}
}

func (s *Server) enter(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.conns[c] = true
	s.tell()
	return true
}

func (s *Server) leave(c net.Conn, goodbye bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.bye = time.Now()
	if !goodbye {
		s.bye = s.bye.Add(comesBack)
	}
	s.tell()
}

// tell wakes all waiting goroutines; the caller has the lock.
func (s *Server) tell() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// Clients returns how many are connected.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Idle waits until no client needs the server any more, and admits none from then on.
func (s *Server) Idle(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, moved := time.Until(s.bye), s.moved
		if n := len(s.conns); n > 0 {
			left = time.Hour // until it moves
		} else if left <= 0 {
			s.ending = true
		}
		over := s.ending
		s.mu.Unlock()
		if over {
			return nil
		}
		t := time.NewTimer(left)
		select {
		case <-moved:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Close ends it. Clients lose their connections, and what they asked for is not answered; they come back to the next server.
func (s *Server) Close() {
	s.mu.Lock()
	s.ending = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	_ = s.l.Close()
	s.work.Wait()
}

// Yielding returns the image's file as the fill reads it: it waits while the guest waits for the same source.
func (d *Disk) Yielding(b source.Blob) source.Blob { return &yielding{b, &d.gate} }

type yielding struct {
	source.Blob
	gate *gate
}

// Open implements source.Blob.
func (y *yielding) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	y.gate.wait(ctx)
	r, err := y.Blob.Open(ctx, off, n)
	if err != nil {
		return nil, err
	}
	return &yields{r, ctx, y.gate}, nil
}

type yields struct {
	io.ReadCloser
	ctx  context.Context
	gate *gate
}

func (y *yields) Read(p []byte) (int, error) {
	y.gate.wait(y.ctx)
	return y.ReadCloser.Read(p)
}
