package launcher

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// serial is the guest's first serial port. QEMU takes one connection, so the launcher holds it: everything the guest says goes to
// the log, and to an open console.
type serial struct {
	conn  net.Conn
	log   io.Writer
	mu    sync.Mutex
	views map[io.Writer]struct{}
}

// dialSerial connects to the port of a domain that has been created and not yet started, so that nothing is lost.
func dialSerial(ctx context.Context, path string, log io.Writer) (*serial, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the serial port: %w", err)
	}
	s := &serial{conn: conn, log: log, views: map[io.Writer]struct{}{}}
	go s.pump()
	return s, nil
}

func (s *serial) pump() {
	buf := make([]byte, 4<<10)
	for {
		n, err := s.conn.Read(buf)
		if n > 0 {
			s.say(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// say writes to the log and every console. A console that cannot take it is dropped: it must not stop the guest's log.
func (s *serial) say(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.log.Write(p)
	for w := range s.views {
		if _, err := w.Write(p); err != nil {
			delete(s.views, w)
		}
	}
}

// attach makes conn a console until it is closed or ctx ends.
func (s *serial) attach(ctx context.Context, conn net.Conn) {
	view := deadlined{conn}
	s.mu.Lock()
	s.views[view] = struct{}{}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = io.Copy(s.conn, conn)
	s.mu.Lock()
	delete(s.views, view)
	s.mu.Unlock()
	_ = conn.Close()
}

// deadlined gives up on a console that has not read for a while.
type deadlined struct{ net.Conn }

func (d deadlined) Write(p []byte) (int, error) {
	_ = d.SetWriteDeadline(time.Now().Add(2 * time.Second))
	return d.Conn.Write(p)
}
