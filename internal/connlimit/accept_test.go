package connlimit_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/connlimit"
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
		done <- connlimit.Serve(l, connlimit.NewRoom(places), func(net.Conn) { refused <- struct{}{} }, func(c net.Conn, admit func()) {
			admit()
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

// TestHosts: a host that opens all connections it can leaves places to others, and loses those that it says nothing on; one that was admitted stays.
func TestHosts(t *testing.T) {
	const places = 8
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- connlimit.Serve(l, connlimit.NewRoom(places), func(net.Conn) {}, func(c net.Conn, admit func()) {
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				return
			}
			admit()
			_, _ = io.Copy(c, c)
		})
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	serves := func(c net.Conn) bool {
		_, err := io.WriteString(c, "xx")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return err == nil
	}
	for _, silent := range []string{"127.0.0.2", "127.0.0.3"} {
		for range 3 * places {
			dial(silent)
		}
	}
	var good []net.Conn
	for range 3 {
		c := dial("127.0.0.4")
		if good = append(good, c); !serves(c) {
			t.Error("those who say nothing keep somebody out")
		}
	}
	var loud []net.Conn // one host that is admitted as often as it can be, and that says so only when all are open
	for range 3 * places {
		loud = append(loud, dial("127.0.0.5"))
	}
	admitted := 0
	for _, c := range loud {
		if serves(c) {
			admitted++
		}
	}
	if admitted == 0 || admitted >= places-len(good) {
		t.Errorf("one host got %d of %d places", admitted, places-len(good))
	}
	if good = append(good, dial("127.0.0.6")); !serves(good[3]) {
		t.Error("one host keeps another out")
	}
	for _, c := range good {
		if !serves(c) {
			t.Error("one that was admitted lost its place")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
