package tlsbatch

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/pki"
)

// counted counts the writes that reach the system.
type counted struct {
	net.Conn
	writes atomic.Int64
	broken atomic.Bool
}

var errBroken = errors.New("the cable is out")

func (c *counted) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errBroken
	}
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// pair returns a connection of ours to a server of crypto/tls.
func pair(t *testing.T) (ours net.Conn, theirs *tls.Conn, raw *counted) {
	t.Helper()
	a, err := pki.New("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Issue(pki.Leaf{Name: "server", DNSNames: []string{"server"}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *tls.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(accepted)
			return
		}
		_ = c.(*tls.Conn).HandshakeContext(t.Context()) // our side sees if it fails
		accepted <- c.(*tls.Conn)
	}()
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw = &counted{Conn: plain}
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate())
	ours, err = Client(t.Context(), raw, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "server"})
	if err != nil {
		t.Fatal(err)
	}
	theirs = <-accepted
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	return ours, theirs, raw
}

// TestWrites: everything arrives, in fewer writes than there are records, and what was written does not wait for more.
func TestWrites(t *testing.T) {
	ours, theirs, raw := pair(t)
	for _, size := range []int{1, 1000, 16 << 10, 16<<10 + 1, 64 << 10, 1<<20 + 7} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		before := raw.writes.Load()
		sent := make(chan error, 1)
		go func() {
			n, err := ours.Write(data)
			if err == nil && n != size {
				err = io.ErrShortWrite
			}
			sent <- err
		}()
		got := make([]byte, size)
		if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes did not arrive: %v", size, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if writes, records := raw.writes.Load()-before, int64(size+16<<10-1)/(16<<10); writes > records/4+1 {
			t.Errorf("%d bytes, %d records, took %d writes", size, records, writes)
		}
	}
}

func TestBothWays(t *testing.T) {
	ours, theirs, _ := pair(t)
	go func() { _, _ = io.Copy(theirs, theirs) }() // it ends with the connection
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	go func() { _, _ = ours.Write(data) }() // what is missing will be missed
	got := make([]byte, len(data))
	if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what came back is not what was sent: %v", err)
	}
}

// TestBroken: a write that did not reach the system is an error, and so is every one after it.
func TestBroken(t *testing.T) {
	ours, _, raw := pair(t)
	raw.broken.Store(true)
	for _, size := range []int{10, 100 << 10} {
		if _, err := ours.Write(make([]byte, size)); !errors.Is(err, errBroken) {
			t.Errorf("%d bytes over a broken connection: %v", size, err)
		}
	}
}

func TestClientChecksTheServer(t *testing.T) {
	raw, other := net.Pipe()
	_ = other.Close()
	if _, err := Client(t.Context(), raw, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "server"}); err == nil {
		t.Error("connected to nobody")
	}
	if _, err := raw.Write([]byte("x")); err == nil {
		t.Error("the connection was left open")
	}
}
