package connlimit

import (
	"net"
	"slices"
	"sync"
)

// Room has a place for each connection that may be open at a time, at all listeners that share it. No host can take all of them:
//
//   - A host has no more admitted connections than there are places left for others. One host that opens all it can has half of them, two have a third
//     each, and so on.
//   - A connection that is not admitted keeps its place until another host needs it: the host with most of such connections loses its oldest.
type Room struct {
	places    int
	mu        sync.Mutex
	occupants []*occupant // in the order in which they came
}

// occupant is an open connection and the host it comes from.
type occupant struct {
	conn     net.Conn
	host     string // empty: it has none, as at sockets of the same machine
	admitted bool
}

// NewRoom returns a Room for n connections.
func NewRoom(n int) *Room { return &Room{places: n} }

// enter gives a connection a place; nil: there is none for it.
func (r *Room) enter(c net.Conn) *occupant {
	g := &occupant{conn: c, host: hostOf(c)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasShare(g.host) || len(r.occupants) >= r.places && !r.replaceOne() {
		return nil
	}
	r.occupants = append(r.occupants, g)
	return g
}

// hasShare reports whether the host has all the admitted connections that it may have.
func (r *Room) hasShare(host string) bool {
	own, all := 0, 0
	for _, g := range r.occupants {
		if g.admitted {
			all++
			if g.host == host {
				own++
			}
		}
	}
	return host != "" && own >= r.places-all
}

// waiting returns how many connections of a host are not admitted.
func (r *Room) waiting(host string) int {
	n := 0
	for _, g := range r.occupants {
		if g.host == host && !g.admitted {
			n++
		}
	}
	return n
}

// replaceOne closes the oldest connection that is not admitted, of the host with most of them; false: there is none.
func (r *Room) replaceOne() bool {
	most, at := 0, -1
	for i, g := range r.occupants {
		if n := r.waiting(g.host); !g.admitted && n > most {
			most, at = n, i
		}
	}
	if at < 0 {
		return false
	}
	_ = r.occupants[at].conn.Close()
	r.occupants = slices.Delete(r.occupants, at, at+1)
	return true
}

// admit makes the place the connection's own. It is closed if its host has its share.
func (r *Room) admit(g *occupant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasShare(g.host) {
		_ = g.conn.Close()
		return
	}
	g.admitted = true
}

func (r *Room) leave(g *occupant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.occupants = slices.DeleteFunc(r.occupants, func(other *occupant) bool { return other == g })
}

func hostOf(c net.Conn) string {
	if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return at.IP.String()
	}
	return ""
}
