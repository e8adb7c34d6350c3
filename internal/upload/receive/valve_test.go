package receive

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// valve is a way to a server that breaks off each connection after so many bytes.
type valve struct {
	url          string
	passed, cuts atomic.Int64
}

func newValve(t *testing.T, server string, each int64) *valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{url: "http://" + l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { v.pass(from, server, each) })
		}
	})
	return v
}

func (v *valve) pass(from net.Conn, server string, each int64) {
	defer from.Close()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
		close(done)
	}()
	n, _ := io.CopyN(to, from, each)
	v.passed.Add(n)
	if n == each {
		v.cuts.Add(1)
		_ = to.Close()
		_ = from.Close()
	}
	<-done
}

func gzipped(p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}
