package requests

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// serial is the guest's first serial port. QEMU accepts one connection, which the launcher has; it copies what the guest writes to the log and to
// every open console.
type serial struct {
	conn  net.Conn
	log   io.Writer
	mu    sync.Mutex
	views map[io.Writer]struct{}
}

// DialSerial connects to the port of a guest that does not run yet, so that nothing it writes is lost.
func DialSerial(ctx context.Context, path string, log io.Writer) (*serial, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the serial port: %w", err)
	}
	s := &serial{conn: conn, log: log, views: map[io.Writer]struct{}{}}
	go s.pump()
	return s, nil
}

// pump reads the port until QEMU closes it.
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

// say writes to the log and to every console. A console that does not read is closed, so that it does not delay the guest's log.
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

// attach uses a connection as a console until it is closed or ctx ends.
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

// deadlined is a console whose writes fail if it does not read for a while.
type deadlined struct{ net.Conn }

func (d deadlined) Write(p []byte) (int, error) {
	_ = d.SetWriteDeadline(time.Now().Add(2 * time.Second))
	return d.Conn.Write(p)
}

// ServeConsole connects `launcher console` in this pod to the serial port.
func ServeConsole(ctx context.Context, port *serial) error {
	_ = os.Remove(launcherapi.ConsoleSocket)
	l, err := net.Listen("unix", launcherapi.ConsoleSocket)
	if err != nil {
		return fmt.Errorf("serve the console: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go port.attach(ctx, conn)
		}
	}()
	return nil
}
