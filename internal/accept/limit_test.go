package accept_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/accept"
)

// TestLimit: a stranger too many closes the stranger that came first, whoever is known stays, and those that are known are bounded too.
func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := accept.Limit(inner, 2, 2)
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
	accept.Know(known.ours)
	accept.Know(known.ours) // a second request
	first, second, third := connect(), connect(), connect()
	if open(first) || !open(second) || !open(third) || !open(known) {
		t.Errorf("open are the first %t, the second %t, the third %t, the known %t", open(first), open(second), open(third), open(known))
	}
	_ = second.ours.Close() // one that leaves makes room
	fourth := connect()
	if !open(third) || !open(fourth) {
		t.Error("there is room for two strangers")
	}
	accept.Know(third.ours)
	accept.Know(fourth.ours)
	if open(known) || !open(third) || !open(fourth) {
		t.Error("of three that are known, the first is closed")
	}
}
