package movelink

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/testing/movekeys"
)

// crumbs is a network that brings no more than so many bytes at a time.
type crumbs struct {
	net.Conn
	most int
}

func (c crumbs) Read(b []byte) (int, error) { return c.Conn.Read(b[:min(len(b), c.most)]) }

// connected is a connection over a socket of this kind.
func connected(t *testing.T, kind, address string) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen(kind, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if near, err = net.Dial(kind, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// joined are two ends with two relays between them, and a network that brings so many bytes at a time.
func joined(t *testing.T, most int) (a, b *net.UnixConn) {
	t.Helper()
	ours, theirs := movekeys.Pair(t)
	left, right := connected(t, "tcp", "127.0.0.1:0")
	dir := t.TempDir()
	a1, a2 := connected(t, "unix", filepath.Join(dir, "a"))
	b1, b2 := connected(t, "unix", filepath.Join(dir, "b"))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	here, there := tls.Client(&wire{Conn: crumbs{left, most}}, ours), tls.Server(&wire{Conn: crumbs{right, most}}, theirs)
	known := make(chan error, 1)
	go func() { known <- there.HandshakeContext(ctx) }()
	if err := errors.Join(here.HandshakeContext(ctx), <-known); err != nil {
		t.Fatal(err)
	}
	go splice(ctx, a2, here)
	go splice(ctx, b2, there)
	return a1.(*net.UnixConn), b1.(*net.UnixConn)
}

// TestSplice: whatever is sent comes, both ways at once, in pieces of any size, over a network that cuts records anywhere; and each way ends
// when its sender has nothing more to say.
func TestSplice(t *testing.T) {
	for _, most := range []int{1 << 20, 16 << 10, 1000, 7} {
		a, b := joined(t, most)
		size := min(3<<20, 20000*most) + 123
		data := map[*net.UnixConn][]byte{a: make([]byte, size), b: make([]byte, size)}
		failed := make(chan error, 4)
		for to, from := range map[*net.UnixConn]*net.UnixConn{a: b, b: a} {
			random := rand.New(rand.NewPCG(uint64(most), uint64(len(failed))))
			for i := range data[from] {
				data[from][i] = byte(random.Uint32())
			}
			go func() {
				for rest := data[from]; len(rest) > 0; {
					n := min(len(rest), 1+random.IntN(400<<10))
					if _, err := from.Write(rest[:n]); err != nil {
						failed <- err
						return
					}
					rest = rest[n:]
				}
				failed <- from.CloseWrite()
			}()
			go func() {
				got, err := io.ReadAll(to)
				if err == nil && !bytes.Equal(got, data[from]) {
					t.Errorf("%d bytes at a time: %d of %d bytes came, or others", most, len(got), size)
				}
				failed <- err
			}()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Fatalf("%d bytes at a time: %v", most, err)
			}
		}
	}
}

// TestSpliceWaitsForNothing: what was said is carried at once, however little it is.
func TestSpliceWaitsForNothing(t *testing.T) {
	for _, most := range []int{1 << 20, 7} {
		a, b := joined(t, most)
		for i := range 100 {
			said := bytes.Repeat([]byte{byte(i)}, 1+i*300)
			if _, err := a.Write(said); err != nil {
				t.Fatal(err)
			}
			heard := make([]byte, len(said))
			if _, err := io.ReadFull(b, heard); err != nil || !bytes.Equal(said, heard) {
				t.Fatalf("%d bytes: %v", len(said), err)
			}
			a, b = b, a
		}
	}
}
