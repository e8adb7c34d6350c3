package accept_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/accept"
)

// TestServe: there are as many connections as there is room for, one that leaves makes room for another, and the end of the listener is the
// end of all.
func TestServe(t *testing.T) {
	const places = 2
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	answered, refused, left := make(chan struct{}, 8), make(chan struct{}, 8), make(chan struct{}, 8)
	done := make(chan error, 1)
	go func() {
		done <- accept.Serve(l, accept.NewRoom(places), func(net.Conn) { refused <- struct{}{} }, func(c net.Conn) {
			answered <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
			left <- struct{}{}
		})
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := dial()
	<-answered
	second := dial()
	<-answered
	third := dial()
	<-refused
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the one that was refused is open: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-left
	for seen := false; !seen; { // its place is free a moment later
		dial()
		select {
		case <-answered:
			seen = true
		case <-refused:
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := len(left); n != places {
		t.Errorf("it ended, and %d of %d connections had", n, places)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its server")
	}
}
