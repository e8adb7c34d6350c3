package formattest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Sample is an image and what it is an image of.
type Sample struct {
	Kind format.Kind
	File []byte
	Sum  string // SHA-256 of the disk, as another program sees it
	// Padded images may end inside their last cluster; the rest of it reads as zeroes.
	Padded bool
	whole  *Disk
}

// Suite tests a format with all faults that a source can have. Every format passes it.
func Suite(t *testing.T, s Sample) {
	t.Helper()
	f := extent.File{ReaderAt: bytes.NewReader(s.File), Size: int64(len(s.File))}
	var err error
	if s.whole, err = random(s.Kind, f, 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := s.whole.Sum(); got != s.Sum {
		t.Fatalf("the disk's sum is %s, want %s", got, s.Sum)
	}
	t.Run("detected from its bytes", func(t *testing.T) {
		t.Parallel()
		head, tail := s.File[:min(len(s.File), format.HeadSize)], s.File[max(0, len(s.File)-format.TailSize):]
		if got := format.Detect(head, tail, f.Size); got != s.Kind {
			t.Fatalf("detected %s, want %s", got, s.Kind)
		}
	})
	t.Run("windows", func(t *testing.T) {
		t.Parallel()
		for _, window := range []int64{4096, 60_001, 1 << 20} {
			s.same(t, fmt.Sprintf("windows of %d", window), func() (*Disk, error) { return random(s.Kind, f, window) })
		}
	})
	t.Run("chunks", func(t *testing.T) {
		t.Parallel()
		for _, chunk := range []int64{997, 4096, 65_537, 1 << 30} {
			s.same(t, fmt.Sprintf("chunks of %d", chunk), func() (*Disk, error) { return streamed(s.stream(), f, chunk, 0) })
		}
	})
	t.Run("crashes", func(t *testing.T) {
		t.Parallel()
		for _, chunk := range []int64{max(5003, f.Size/50), max(65_536, f.Size/20)} {
			s.same(t, fmt.Sprintf("a crash after every %d bytes", chunk), func() (*Disk, error) {
				return streamed(s.stream(), f, chunk, 1)
			})
		}
	})
	t.Run("reader breaks", func(t *testing.T) { t.Parallel(); s.readerBreaks(t) })
	t.Run("output breaks", func(t *testing.T) { t.Parallel(); s.outputBreaks(t) })
	t.Run("truncated", func(t *testing.T) { t.Parallel(); s.truncated(t) })
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := format.Stream(ctx, s.stream(), bytes.NewReader(s.File), &Memory{}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled stream ends with %v", err)
		}
	})
}

// stream returns what the kind is when the end of the file cannot be seen.
func (s Sample) stream() format.Kind {
	return format.Detect(s.File[:min(len(s.File), format.HeadSize)], nil, -1)
}

func (s Sample) same(t *testing.T, how string, disk func() (*Disk, error)) {
	t.Helper()
	d, err := disk()
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	if diff := d.Diff(s.whole); diff != "" {
		t.Fatalf("%s: %s", how, diff)
	}
}

func random(kind format.Kind, f extent.File, window int64) (*Disk, error) {
	m, err := format.Open(kind, f.ReaderAt, f.Size)
	if err != nil {
		return nil, err
	}
	return Assemble(context.Background(), m, f, window)
}

func streamed(kind format.Kind, f extent.File, chunk int64, crash int) (*Disk, error) {
	out, err := Stream(context.Background(), kind, f, chunk, crash)
	if err != nil {
		return nil, err
	}
	return out.Disk, nil
}

var errBroken = errors.New("the wire was cut")

// flaky fails from its nth read on.
type flaky struct {
	io.ReaderAt
	left atomic.Int64
}

func (r *flaky) ReadAt(p []byte, off int64) (int, error) {
	if r.left.Add(-1) < 0 {
		return 0, errBroken
	}
	return r.ReaderAt.ReadAt(p, off)
}

// readerBreaks lets each of the first reads fail in turn: the error must come out as it is, and not as a bad image.
func (s Sample) readerBreaks(t *testing.T) {
	for n := range int64(40) {
		r := &flaky{ReaderAt: bytes.NewReader(s.File)}
		r.left.Store(n)
		_, err := random(s.Kind, extent.File{ReaderAt: r, Size: int64(len(s.File))}, 1<<20)
		if err == nil {
			return // it needs no more reads than that
		}
		if bad := (*task.Error)(nil); !errors.Is(err, errBroken) || errors.As(err, &bad) {
			t.Fatalf("the %d. read failed and the error is %v", n+1, err)
		}
	}
}

// outputBreaks lets the output fail.
func (s Sample) outputBreaks(t *testing.T) {
	out := &Memory{Broken: errBroken}
	if _, err := format.Stream(context.Background(), s.stream(), bytes.NewReader(s.File), out); !errors.Is(err, errBroken) {
		t.Fatalf("the output failed and the error is %v", err)
	}
	small := &Memory{Limit: 511}
	if _, err := format.Stream(context.Background(), s.Kind, bytes.NewReader(s.File), small); err == nil && s.Kind != format.Raw {
		t.Fatal("the output was too small and nothing happened")
	}
}

// truncated cuts the file at every boundary. What is left must be refused for being truncated or broken, or still give
// the same disk; it must never give another one.
func (s Sample) truncated(t *testing.T) {
	step := max(512, len(s.File)/40&^511)
	lost := len(s.File)
	for n := len(s.File) - step; n >= 0; n -= step {
		for _, cut := range []int{n, n + 1} {
			f := extent.File{ReaderAt: bytes.NewReader(s.File[:cut]), Size: int64(cut)}
			for how, disk := range map[string]func() (*Disk, error){
				"at random": func() (*Disk, error) { return random(s.Kind, f, 1<<20) },
				"streamed":  func() (*Disk, error) { return streamed(s.stream(), f, 65_536, 0) },
			} {
				d, err := disk()
				var bad *task.Error
				switch {
				case errors.As(err, &bad) && (bad.Reason == task.BadImage || bad.Reason == task.UnsupportedImage):
					lost = min(lost, cut)
				case errors.Is(err, errDecode):
				case err != nil:
					t.Fatalf("cut at %d, %s: refused with %v", cut, how, err)
				case d.Diff(s.whole) != "" && (!s.Padded || cut <= len(s.File)-1<<16) && s.stream() != format.Unsigned:
					t.Fatalf("cut at %d, %s: another disk", cut, how)
				}
			}
		}
	}
	if lost == len(s.File) && s.Kind != format.Raw {
		t.Fatal("no cut was ever noticed")
	}
}
