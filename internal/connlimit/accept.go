// Package connlimit takes connections, as many at a time as there is room for, and ends with its listener. It knows no protocol.
package connlimit

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Serve calls answer for every connection to l until l is closed. Then it closes those that are open, and waits for their answers to end. answer calls
// admit when the client has said who it is, which may close the connection. A connection for which there is no room is passed to refused, and closed.
func Serve(l net.Listener, room *Room, refused func(net.Conn), answer func(c net.Conn, admit func())) error {
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
		g := room.enter(c)
		if g == nil {
			refused(c)
			_ = c.Close() // the client comes back
			continue
		}
		open.Store(c, nil)
		all.Go(func() {
			defer func() { open.Delete(c); _ = c.Close(); room.leave(g) }()
			answer(c, func() { room.admit(g) })
		})
	}
}
