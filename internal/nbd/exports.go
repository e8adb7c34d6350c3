package nbd

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/connlimit"
)

// Exports are disks by their names. Lookup is asked for each client; nil says that there is none of this name.
type Exports struct {
	Lookup func(name string) Disk
	once   sync.Once
	room   *connlimit.Room
	shared chan struct{} // a place for each request that is carried out, but for one of each client
}

// Limits on what unknown clients can make a server of exports hold: a quarter of a MiB for each request. Each client has one
// request of its own, so clients that do not read their answers cannot block others.
const (
	mostClients   = 128
	mostRequests  = 64
	longestShared = 256 << 10
	helloPatience = 15 * time.Second
	sendPatience  = time.Minute
)

// Serve answers every client that connects to l until l is closed, and waits for those that are connected, whose connections it closes.
func (x *Exports) Serve(l net.Listener) error {
	x.once.Do(func() { x.room, x.shared = connlimit.NewRoom(mostClients), make(chan struct{}, mostRequests) })
	err := connlimit.Serve(l, x.room, func(net.Conn) {}, func(c net.Conn, admit func()) {
		_ = x.answer(c, admit) // as in Serve
	})
	if err != nil {
		return fmt.Errorf("serve NBD clients: %w", err)
	}
	return nil
}

func (x *Exports) answer(c net.Conn, admit func()) error {
	s := newSession(impatient{c}, nil)
	s.lookup, s.shared, s.longest = x.Lookup, x.shared, longestShared
	if err := c.SetReadDeadline(time.Now().Add(helloPatience)); err != nil {
		return fmt.Errorf("wait for a client: %w", err)
	}
	if err := s.negotiate(); err != nil || s.left {
		return err
	}
	admit()
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for a client: %w", err)
	}
	return s.transmit()
}

// impatient does not wait for ever for a client that does not read its answers.
type impatient struct{ net.Conn }

func (i impatient) Write(p []byte) (int, error) {
	if err := i.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return 0, fmt.Errorf("answer: %w", err)
	}
	return i.Conn.Write(p)
}
