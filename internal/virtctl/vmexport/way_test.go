package vmexport

import (
	"net"
	"testing"
	"time"
)

// TestDialUntil: a Service that refuses connections at first is asked again.
func TestDialUntil(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	made := make(chan net.Listener, 1)
	time.AfterFunc(look/2, func() { // while the first try has been refused
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Error(err)
		}
		made <- l
	})
	conn, err := dialUntil(t.Context(), &net.Dialer{}, "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	_ = (<-made).Close()
}
