package connlimit_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/connlimit"
)

// TestLimit: one unknown connection too many closes the oldest unknown one, known ones stay, and known ones are bounded too.
func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := connlimit.Limit(inner, 2, 2)
	defer l.Close()
	type pair struct{ theirs, ours net.Conn }
	connect := func() pair {
		t.Helper()
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ours, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = theirs.Close(), ours.Close() })
		return pair{theirs, ours}
	}
	open := func(p pair) bool {
		t.Helper()
		if err := p.theirs.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := p.theirs.Read(make([]byte, 1))
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return true
		}
		if !errors.Is(err, io.EOF) {
			t.Logf("closed with %v", err)
		}
		return false
	}
	known := connect()
	connlimit.Know(known.ours)
	connlimit.Know(known.ours) // a second request
	first, second, third := connect(), connect(), connect()
	if open(first) || !open(second) || !open(third) || !open(known) {
		t.Errorf("open are the first %t, the second %t, the third %t, the known %t", open(first), open(second), open(third), open(known))
	}
	_ = second.ours.Close() // one that leaves makes room
	fourth := connect()
	if !open(third) || !open(fourth) {
		t.Error("there is room for two strangers")
	}
	connlimit.Know(third.ours)
	connlimit.Know(fourth.ours)
	if open(known) || !open(third) || !open(fourth) {
		t.Error("of three that are known, the first is closed")
	}
}
