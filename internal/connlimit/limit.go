package connlimit

import (
	"container/list"
	"net"
	"sync"
)

// Limited is a listener that any client may connect to. A connection is unknown until Know is called for it: when there are too
// many unknown ones, the oldest is closed. So a flood of unauthenticated clients takes a bounded share of memory, and does not
// lock out a client that logs in faster than they reconnect. Known connections are bounded too, apart from the unknown ones.
type Limited struct {
	net.Listener
	mu               sync.Mutex
	strangers, known *list.List // of *guest, the first come first
	mostStrangers    int
	mostKnown        int
}

// Limit bounds the connections to l that are open at a time.
func Limit(l net.Listener, strangers, known int) *Limited {
	return &Limited{Listener: l, strangers: list.New(), known: list.New(), mostStrangers: strangers, mostKnown: known}
}

// Accept implements net.Listener.
func (l *Limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, at: l}
	l.move(g, nil, l.strangers, l.mostStrangers)
	return g, nil
}

// move puts g from one list to the end of another, and closes the first of that if there are too many. One that has left stays away.
func (l *Limited) move(g *guest, from, to *list.List, most int) {
	l.mu.Lock()
	if g.in != from {
		l.mu.Unlock()
		return
	}
	g.leave()
	g.in, g.place = to, to.PushBack(g)
	var first *guest
	if to.Len() > most {
		first = to.Front().Value.(*guest)
		first.leave()
	}
	l.mu.Unlock()
	if first != nil {
		_ = first.Conn.Close()
	}
}

// Know marks c as known: its client has authenticated. A connection of another listener is left as it is.
func Know(c net.Conn) {
	for {
		switch is := c.(type) {
		case *guest:
			is.at.move(is, is.at.strangers, is.at.known, is.at.mostKnown)
			return
		case interface{ NetConn() net.Conn }: // TLS
			c = is.NetConn()
		default:
			return
		}
	}
}

// guest is an open connection.
type guest struct {
	net.Conn
	at    *Limited
	in    *list.List // nil: it has left
	place *list.Element
}

// leave gives its place up. The listener is locked.
func (g *guest) leave() {
	if g.in != nil {
		g.in.Remove(g.place)
		g.in, g.place = nil, nil
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.at.mu.Lock()
	g.leave()
	g.at.mu.Unlock()
	return g.Conn.Close()
}
