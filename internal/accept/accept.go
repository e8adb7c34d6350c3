// Package accept takes connections, as many at a time as there is room for, and ends with its listener. It knows no protocol.
package accept

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Room is a place for each connection that may be open at a time, at all listeners that share it.
type Room chan struct{}

// NewRoom is one with n places.
func NewRoom(n int) Room { return make(Room, n) }

// Serve has answer see to every connection to l until l is closed. Then it closes those that are open, and waits for their answers to end.
// A connection for which there is no room is told to refused, and closed.
func Serve(l net.Listener, room Room, refused, answer func(net.Conn)) error {
	var open sync.Map
	var all sync.WaitGroup
	defer all.Wait()
	defer open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for connections: %w", err)
		}
		select {
		case room <- struct{}{}:
		default:
			refused(c)
			_ = c.Close() // whoever it is comes back
			continue
		}
		open.Store(c, nil)
		all.Go(func() {
			defer func() { open.Delete(c); _ = c.Close(); <-room }()
			answer(c)
		})
	}
}
