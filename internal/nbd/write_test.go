package nbd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-vm/berth/internal/nbd"
	"github.com/berth-vm/berth/internal/testing/nbdtest"
)

// memory is a disk that is written to.
type memory struct {
	mu      sync.Mutex
	p       []byte
	flushes int
	fails   error // what a write says
}

func (m *memory) Size() int64 { return int64(len(m.p)) }

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.p[off:]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return 0, m.fails
	}
	return copy(m.p[off:], p), nil
}

func (m *memory) Zero(off, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.p[off : off+n])
	return nil
}

func (m *memory) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushes++
	return nil
}

func dial(t *testing.T, d nbd.Disk) *nbdtest.Client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- nbd.Serve(l, d) }()
	c, err := nbdtest.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = c.Close(), l.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return c
}

// ending is a disk whose server closes connections.
type ending struct{ *memory }

func (ending) ReadAt([]byte, int64) (int, error) { return 0, fmt.Errorf("get: %w", io.EOF) }

// TestEnd: a read that failed is not answered with zeroes because an end of something is in its error.
func TestEnd(t *testing.T) {
	c := dial(t, ending{&memory{p: make([]byte, 8192)}})
	if _, err := c.ReadAt(make([]byte, 4096), 0); err == nil {
		t.Error("what could not be read was answered")
	}
}

func TestWriter(t *testing.T) {
	m := &memory{p: bytes.Repeat([]byte{7}, 3<<20)}
	c := dial(t, m)
	if c.Flags&2 != 0 || c.Flags&(4|8|64) != 4|8|64 {
		t.Fatalf("flags %x: read-only, or without flush, FUA or write-zeroes", c.Flags)
	}
	want := bytes.Clone(m.p)
	copy(want[1000:], "hello")
	clear(want[1<<20 : 1<<20+70000])
	for what, err := range map[string]error{
		"a write":           c.Ask(nbdtest.Write, 0, 1000, 5, []byte("hello")),
		"zeroes":            c.Ask(nbdtest.Zeroes, 0, 1<<20, 70000, nil),
		"a flush":           c.Ask(nbdtest.Flush, 0, 0, 0, nil),
		"a write for sure":  c.Ask(nbdtest.Write, 1, 1000, 5, []byte("hello")),
		"a write of naught": c.Ask(nbdtest.Write, 0, 0, 0, nil),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	got := make([]byte, 1<<20)
	for off := int64(0); off < 3<<20; off += 1 << 20 {
		if _, err := c.ReadAt(got, off); err != nil || !bytes.Equal(got, want[off:off+1<<20]) {
			t.Errorf("at %d: %v, or other bytes", off, err)
		}
	}
	if m.flushes != 2 {
		t.Errorf("%d flushes: the one asked for and the one that a write asked for are 2", m.flushes)
	}
	long := make([]byte, 1<<20+1)
	m.fails = syscall.ENOSPC
	for want, err := range map[nbdtest.Code]error{
		28: errors.Join(c.Ask(nbdtest.Write, 0, 3<<20-1, 2, []byte{1, 2}), c.Ask(nbdtest.Zeroes, 0, 3<<20-1, 2, nil)),
		22: errors.Join(c.Ask(nbdtest.Write, 0, 0, len(long), long), c.Ask(nbdtest.Read, 0, 0, len(long), long)),
	} {
		var got nbdtest.Code
		if !errors.As(err, &got) || got != want {
			t.Errorf("%v, want %d", err, want)
		}
	}
	var full nbdtest.Code
	if err := c.Ask(nbdtest.Write, 0, 0, 1, []byte{1}); !errors.As(err, &full) || full != 28 {
		t.Errorf("a disk without room: %v", err)
	}
	m.fails = errors.New("broken")
	if err := c.Ask(nbdtest.Write, 0, 0, 1, []byte{1}); !errors.As(err, &full) || full != 5 {
		t.Errorf("a disk that fails: %v", err)
	}
}
