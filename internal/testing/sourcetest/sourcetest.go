// Package sourcetest is the conformance suite of sources: Read is for all of them, Serve for those behind an HTTP
// server, which it puts real faults in front of. It knows a source by its Blob only.
package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Content is n bytes that look random, the same for the same seed.
func Content(seed byte, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{seed})
	_, _ = r.Read(b) // never fails
	return b
}

// Read checks what every source promises of a blob that holds content. open is called for each check, because a blob
// without ranges is read once.
func Read(t *testing.T, content []byte, open func(t *testing.T) source.Blob) {
	t.Helper()
	t.Run("whole", func(t *testing.T) {
		b := open(t)
		if info := b.Info(); info.Size >= 0 && info.Size != int64(len(content)) {
			t.Errorf("size is %d, want %d", info.Size, len(content))
		}
		if b.Info().Name == "" {
			t.Error("the blob has no name for messages")
		}
		Same(t, b, 0, -1, content)
	})
	t.Run("ahead", func(t *testing.T) {
		a, err := source.NewAhead(t.Context(), open(t), 0, source.AheadOptions{Fetchers: 3, Chunk: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		got, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(a, 10)))
		rest, err2 := io.ReadAll(a)
		if got = append(got, rest...); !bytes.Equal(got, content) || err != nil || err2 != nil {
			t.Errorf("got %d bytes (%v, %v), want the %d that were put there", len(got), err, err2, len(content))
		}
	})
	t.Run("cancel", func(t *testing.T) { cancelled(t, open(t), content) })
	if b := open(t); !b.Info().Ranged {
		t.Run("no ranges", func(t *testing.T) {
			if r, err := b.Open(t.Context(), 1, 1); err == nil {
				r.Close()
				t.Error("a blob without ranges gave one")
			}
		})
		return
	}
	t.Run("ranges", func(t *testing.T) { ranges(t, open(t), content) })
	t.Run("concurrent ranges", func(t *testing.T) { concurrent(t, open(t), content) })
	t.Run("beyond the end", func(t *testing.T) { beyond(t, open(t), int64(len(content))) })
	t.Run("anywhere", func(t *testing.T) { anywhere(t, open(t), content) })
}

// Same checks that [off, off+n) of b is want.
func Same(t *testing.T, b source.Blob, off, n int64, want []byte) {
	t.Helper()
	got, err := Get(t.Context(), b, off, n)
	if err != nil {
		t.Errorf("read %d bytes from %d: %v", n, off, err)
	} else if !bytes.Equal(got, want) {
		t.Errorf("read %d bytes from %d: got %d bytes that differ from the %d put there", n, off, len(got), len(want))
	}
}

// Get reads [off, off+n) of b.
func Get(ctx context.Context, b source.Blob, off, n int64) ([]byte, error) {
	r, err := b.Open(ctx, off, n)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(r)
	return got, errors.Join(err, r.Close())
}

// Fails checks that err has this reason, and that a person would find in it what must be there.
func Fails(t *testing.T, err error, reason task.Reason) {
	t.Helper()
	var e *task.Error
	switch {
	case err == nil:
		t.Errorf("no error, want %s", reason)
	case !errors.As(err, &e):
		t.Errorf("error without a reason, want %s: %v", reason, err)
	case e.Reason != reason:
		t.Errorf("reason is %s, want %s: %v", e.Reason, reason, err)
	}
}

// spans returns the ranges where mistakes hide.
func spans(size int64) [][2]int64 {
	return [][2]int64{{0, 1}, {size - 1, 1}, {0, size}, {size, 0}, {0, 0}, {1, size - 2}, {size / 2, 1}, {size / 3, size / 3},
		{size / 2, -1}, {size, -1}}
}

func ranges(t *testing.T, b source.Blob, content []byte) {
	for _, s := range spans(int64(len(content))) {
		want := content[s[0]:]
		if s[1] >= 0 {
			want = want[:s[1]]
		}
		Same(t, b, s[0], s[1], want)
	}
	r, err := b.Open(t.Context(), 3, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := iotest.TestReader(io.LimitReader(r, 1000), content[3:1003]); err != nil {
		t.Errorf("reader: %v", err)
	}
}

func concurrent(t *testing.T, b source.Blob, content []byte) {
	var wg sync.WaitGroup
	defer wg.Wait()
	const parts = 16
	part := int64(len(content) / parts)
	for i := range int64(parts) {
		wg.Go(func() { Same(t, b, i*part, part, content[i*part:(i+1)*part]) })
	}
}

func beyond(t *testing.T, b source.Blob, size int64) {
	for _, s := range [][2]int64{{size, 1}, {0, size + 1}, {-1, 1}, {size + 1, -1}, {1, 1<<63 - 1}} {
		if got, err := Get(t.Context(), b, s[0], s[1]); err == nil {
			t.Errorf("read %d bytes from %d of %d: got %d bytes and no error", s[1], s[0], size, len(got))
		}
	}
}

func anywhere(t *testing.T, b source.Blob, content []byte) {
	at, err := source.NewReaderAt(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that fails must fail again
	for range 50 {
		off := r.Int64N(int64(len(content)))
		p := make([]byte, r.Int64N(int64(len(content))-off)+1)
		if n, err := at.ReadAt(p, off); err != nil || !bytes.Equal(p, content[off:off+int64(n)]) {
			t.Fatalf("%d bytes at %d: got %d, %v", len(p), off, n, err)
		}
	}
	if n, err := at.ReadAt(make([]byte, 10), int64(len(content))-4); n != 4 || !errors.Is(err, io.EOF) {
		t.Errorf("across the end: got %d bytes, %v, want 4 and EOF", n, err)
	}
}

func cancelled(t *testing.T, b source.Blob, content []byte) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := b.Open(ctx, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	// Buffered bytes may still arrive; the end may not.
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != int64(len(content)-10) {
		t.Errorf("a cancelled reader ended after %d bytes without an error", n)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled reader says %v", err)
	}
	var e *task.Error
	if errors.As(err, &e) {
		t.Errorf("cancelling is the source's fault: %s", fmt.Sprint(err))
	}
}
