//go:build apiserver || e2e

package browser

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Line is the way from a browser to a server, which can be cut and slowed.
type Line struct {
	Host string // where it begins

	mu    sync.Mutex
	cut   bool
	each  int // bytes per second; 0: as fast as it goes
	conns map[net.Conn]bool
}

// NewLine leads to the server of an address until the test ends.
func NewLine(t *testing.T, address string) *Line {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Line{Host: l.Addr().String(), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close(); n.Cut() })
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			go n.join(here, to.Host)
		}
	}()
	return n
}

// Over returns an address of the server, as it is reached over the line.
func (n *Line) Over(address string) string {
	u, _ := url.Parse(address) // it was parsed before
	u.Host = n.Host
	return u.String()
}

func (n *Line) join(here net.Conn, to string) {
	defer here.Close()
	there, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer there.Close()
	n.mu.Lock()
	cut := n.cut
	n.conns[here], n.conns[there] = true, true
	n.mu.Unlock()
	if cut {
		return
	}
	done := make(chan struct{}, 2)
	go func() { n.copy(there, here); done <- struct{}{} }()
	go func() { n.copy(here, there); done <- struct{}{} }()
	<-done
}

// copy copies at the speed of the line.
func (n *Line) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		got, err := from.Read(buf)
		if got > 0 {
			if _, failed := to.Write(buf[:got]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
		n.mu.Lock()
		each := n.each
		n.mu.Unlock()
		if each > 0 {
			<-time.After(time.Duration(got) * time.Second / time.Duration(each))
		}
	}
}

// Cut ends all connections, and lets none through until Mend.
func (n *Line) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for c := range n.conns {
		_ = c.Close()
	}
	n.conns = map[net.Conn]bool{}
}

// Mend lets connections through again.
func (n *Line) Mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = false
}

// Slow bounds how many bytes go through each connection in a second.
func (n *Line) Slow(each int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.each = each
}
