package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// memory is a blob that counts what is done to it.
type memory struct {
	p       []byte
	ranged  bool
	opens   atomic.Int64
	open    atomic.Int64 // readers at this moment
	ahead   atomic.Int64 // the highest offset asked for
	failAt  int64        // reading this byte is an error; 0: none
	failure error
	gate    chan struct{} // if set, every Open waits for it
}

func (m *memory) Info() Info {
	return Info{Name: "memory", Size: int64(len(m.p)), Ranged: m.ranged}
}

func (m *memory) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	m.opens.Add(1)
	if m.gate != nil {
		select {
		case <-m.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if n < 0 {
		n = int64(len(m.p)) - off
	}
	for seen := m.ahead.Load(); off+n > seen && !m.ahead.CompareAndSwap(seen, off+n); seen = m.ahead.Load() {
	}
	var r io.Reader = bytes.NewReader(m.p[off : off+n])
	if m.failAt > 0 && off <= m.failAt && m.failAt < off+n {
		r = io.MultiReader(bytes.NewReader(m.p[off:m.failAt]), iotest.ErrReader(m.failure))
	}
	m.open.Add(1)
	return &counted{Reader: iotest.HalfReader(r), open: &m.open}, nil
}

func (m *memory) Close() error { return nil }

type counted struct {
	io.Reader
	open *atomic.Int64
}

func (c *counted) Close() error {
	c.open.Add(-1)
	return nil
}

func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b) // never fails
	return b
}

func newAhead(t *testing.T, m *memory, off int64, o AheadOptions) *Ahead {
	t.Helper()
	a, err := NewAhead(t.Context(), m, off, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		if n := m.open.Load(); n != 0 {
			t.Errorf("%d readers are still open", n)
		}
	})
	return a
}

func TestAheadReadsInOrder(t *testing.T) {
	p := content(1_000_003)
	for _, o := range []AheadOptions{{1, 1000}, {4, 64 << 10}, {7, 999}, {16, 1 << 20}, {3, 1_000_003}, {}} {
		for _, ranged := range []bool{true, false} {
			for _, off := range []int64{0, 1, 500_000, 1_000_002, 1_000_003} {
				if !ranged && off != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%+v/%t/%d", o, ranged, off), func(t *testing.T) {
					a := newAhead(t, &memory{p: p, ranged: ranged}, off, o)
					if err := iotest.TestReader(io.LimitReader(a, 300), p[off:min(off+300, int64(len(p)))]); err != nil && off+300 < int64(len(p)) {
						t.Fatal(err)
					}
					var got []byte
					for {
						b, err := a.Next()
						if errors.Is(err, io.EOF) {
							break
						}
						if err != nil || len(b) == 0 {
							t.Fatalf("after %d bytes: %d bytes, %v", len(got), len(b), err)
						}
						got = append(got, b...)
					}
					if want := p[min(off+300, int64(len(p))):]; !bytes.Equal(got, want) {
						t.Errorf("got %d bytes, want %d", len(got), len(want))
					}
				})
			}
		}
	}
}

func TestAheadStaysWithinItsMemory(t *testing.T) {
	m := &memory{p: content(1 << 20), ranged: true}
	a := newAhead(t, m, 0, AheadOptions{Fetchers: 3, Chunk: 10_000})
	for at := int64(0); at < 1<<20; {
		b, err := a.Next()
		if err != nil {
			t.Fatal(err)
		}
		at += int64(len(b))
		// The chunk being consumed, and the two after it.
		if reach := m.ahead.Load(); reach > at+3*10_000 {
			t.Fatalf("at %d bytes up to %d were asked for", at, reach)
		}
	}
}

func TestAheadEndsWithTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	m := &memory{p: content(1 << 20), ranged: true, failAt: 345_678, failure: boom}
	a := newAhead(t, m, 0, AheadOptions{Fetchers: 4, Chunk: 10_000})
	got, err := io.ReadAll(a)
	if !errors.Is(err, boom) || !bytes.Equal(got, m.p[:345_678]) {
		t.Errorf("got %d bytes and %v, want 345678 and boom", len(got), err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, boom) {
		t.Errorf("the second read says %v", err)
	}
}

func TestAheadOfABlobThatBreaksItsContract(t *testing.T) {
	m := &memory{p: content(100_000), ranged: true, failAt: 50_000, failure: io.EOF}
	a := newAhead(t, m, 0, AheadOptions{Fetchers: 2, Chunk: 10_000})
	if got, err := io.ReadAll(a); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short blob gave %d bytes and %v", len(got), err)
	}
}

func TestAheadCloseEndsABlockedRead(t *testing.T) {
	m := &memory{p: content(100_000), ranged: true, gate: make(chan struct{})}
	a := newAhead(t, m, 0, AheadOptions{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Read(make([]byte, 1)); err == nil {
			t.Error("a closed reader read")
		}
	})
	a.Close()
	wg.Wait()
}

func TestAheadOutOfRange(t *testing.T) {
	m := &memory{p: content(10), ranged: true}
	for _, off := range []int64{-1, 11} {
		if _, err := NewAhead(t.Context(), m, off, AheadOptions{}); err == nil {
			t.Errorf("read from %d of 10 bytes", off)
		}
	}
	if _, err := NewAhead(t.Context(), &memory{p: content(10)}, 1, AheadOptions{}); err == nil {
		t.Error("read a stream from its middle")
	}
}

func TestReaderAtFetchesAPageOnce(t *testing.T) {
	m := &memory{p: content(10 * pageSize), ranged: true}
	r, err := NewReaderAt(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range int64(100) {
				p := make([]byte, 512)
				if _, err := r.ReadAt(p, i*512); err != nil || !bytes.Equal(p, m.p[i*512:i*512+512]) {
					t.Errorf("at %d: %v", i*512, err)
				}
			}
		})
	}
	wg.Wait()
	if n := m.opens.Load(); n != 1 {
		t.Errorf("800 reads of one page opened the blob %d times", n)
	}
}

func TestReaderAtForgetsErrors(t *testing.T) {
	m := &memory{p: content(pageSize), ranged: true, failAt: 10, failure: errors.New("boom")}
	r, err := NewReaderAt(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadAt(make([]byte, 5), 100); err == nil {
		t.Error("an error was lost")
	}
	m.failAt = 0
	if _, err := r.ReadAt(make([]byte, 5), 100); err != nil {
		t.Errorf("an error was kept: %v", err)
	}
}

func TestReaderAtKeepsFewPages(t *testing.T) {
	m := &memory{p: content(3 * pageCount * pageSize), ranged: true}
	r, err := NewReaderAt(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3 * pageCount) {
		p := make([]byte, 1)
		if _, err := r.ReadAt(p, i*pageSize); err != nil || p[0] != m.p[i*pageSize] {
			t.Fatalf("page %d: %v", i, err)
		}
		if _, err := r.ReadAt(p, 0); err != nil { // the page of the header stays
			t.Fatal(err)
		}
		if len(r.pages) > pageCount {
			t.Fatalf("%d pages are kept", len(r.pages))
		}
	}
	if n := m.opens.Load(); n != 3*pageCount {
		t.Errorf("the blob was opened %d times for %d pages", n, 3*pageCount)
	}
}

func TestSection(t *testing.T) {
	m := &memory{p: content(1000), ranged: true}
	s, err := Section(m, 100, 200, "part")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ off, n int64 }{{0, -1}, {50, 10}, {200, 0}, {199, 1}} {
		r, err := s.Open(t.Context(), c.off, c.n)
		if err != nil {
			t.Fatal(err)
		}
		n := c.n
		if n < 0 {
			n = 200 - c.off
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, m.p[100+c.off:100+c.off+n]) {
			t.Errorf("%+v: got %d bytes, %v", c, len(got), err)
		}
	}
	for _, c := range []struct{ off, n int64 }{{0, 201}, {-1, 1}, {201, -1}, {1, 1<<63 - 1}} {
		if _, err := s.Open(t.Context(), c.off, c.n); err == nil {
			t.Errorf("%+v is beyond the section", c)
		}
	}
	if _, err := Section(m, 900, 101, "part"); err == nil {
		t.Error("a section beyond the end was made")
	}
}
