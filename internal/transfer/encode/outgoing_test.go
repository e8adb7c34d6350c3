package encode

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

// sparse returns a disk of that size with data in some places, and says where.
func sparse(size int64, places ...[2]int64) Disk {
	random := rand.New(rand.NewPCG(1, uint64(size)))
	content := make([]byte, size)
	for _, p := range places {
		for i := range content[p[0] : p[0]+p[1]] {
			content[p[0]+int64(i)] = byte(random.Uint32()>>8 | 1)
		}
	}
	return Disk{ReaderAt: bytes.NewReader(content), Size: size, Data: func(_ context.Context, from, to int64) ([][2]int64, error) {
		var in [][2]int64
		for _, p := range places {
			if begin, end := max(p[0], from), min(p[0]+p[1], to); begin < end {
				in = append(in, [2]int64{begin, end - begin})
			}
		}
		return in, nil
	}}
}

const mib = 1 << 20

// disks are those that each way out is tried with.
var disks = map[string]func() Disk{
	"nothing":       func() Disk { return sparse(0) },
	"one sector":    func() Disk { return sparse(512, [2]int64{0, 512}) },
	"only zeroes":   func() Disk { return sparse(3*mib + 512) },
	"full":          func() Disk { return sparse(5*mib+512, [2]int64{0, 5*mib + 512}) },
	"the end alone": func() Disk { return sparse(2*mib+1000, [2]int64{2*mib + 999, 1}) },
	"here and there": func() Disk {
		return sparse(20*mib+4096, [2]int64{100, 10}, [2]int64{64<<10 - 1, 2}, [2]int64{3 * mib, mib}, [2]int64{17 * mib, mib}, [2]int64{20 * mib, 4096})
	},
}

func whole(t *testing.T, d Disk) []byte {
	t.Helper()
	content, err := io.ReadAll(io.NewSectionReader(d, 0, d.Size))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestGzip: gzip decompresses it to the disk, and a hole costs next to nothing.
func TestGzip(t *testing.T) {
	for name, d := range disks {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Gzip(t.Context(), &out, d()); err != nil {
				t.Fatal(err)
			}
			length := out.Len()
			z, err := gzip.NewReader(&out)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(z)
			if err != nil || !bytes.Equal(got, whole(t, d())) {
				t.Errorf("%d bytes come out, %v", len(got), err)
			}
			if name == "here and there" && length > 4*mib {
				t.Errorf("20 MiB with 2 MiB of data are %d bytes", length)
			}
		})
	}
}

// TestGzipEnds: a client that goes away, or a disk that cannot be read, ends it.
func TestGzipEnds(t *testing.T) {
	d := disks["full"]()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Gzip(ctx, io.Discard, d); err == nil {
		t.Error("nobody wants it, and it is made")
	}
	d.Size += mib // more than there is
	if err := Gzip(t.Context(), io.Discard, d); err == nil {
		t.Error("a disk that cannot be read to its end is no error")
	}
	gone, w := io.Pipe()
	_ = gone.Close()
	if err := Gzip(t.Context(), w, disks["full"]()); err == nil {
		t.Error("a client that has gone is no error")
	}
}

// TestRanges: any part of an image that is read is the part of the image, and its size is known before.
func TestRanges(t *testing.T) {
	for name, d := range disks {
		t.Run(name, func(t *testing.T) {
			i, err := QCOW2(t.Context(), d())
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(io.NewSectionReader(i, 0, i.Size()))
			if err != nil || int64(len(all)) != i.Size() {
				t.Fatalf("%d bytes of %d, %v", len(all), i.Size(), err)
			}
			random := rand.New(rand.NewPCG(2, uint64(len(all))))
			for range 50 {
				from := random.IntN(len(all))
				p := make([]byte, 1+random.IntN(200<<10))
				n, err := i.ReadAt(p, int64(from))
				if n < len(p) && !errors.Is(err, io.EOF) || !bytes.Equal(p[:n], all[from:from+n]) || n < min(len(p), len(all)-from) {
					t.Fatalf("%d bytes at %d: %d, %v", len(p), from, n, err)
				}
			}
		})
	}
}

// TestLarge: a large disk costs little memory, and its tables fit.
func TestLarge(t *testing.T) {
	const tib = 1 << 40
	d := Disk{Size: tib, ReaderAt: zeroes{}, Data: func(_ context.Context, from, to int64) ([][2]int64, error) {
		return [][2]int64{{from, to - from}}, nil
	}}
	i, err := QCOW2(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if more := i.Size() - d.Size; more < 0 || more > d.Size/1000 {
		t.Errorf("an image of a TiB has %d bytes more", more)
	}
	last := make([]byte, cluster)
	if _, err := i.ReadAt(last, i.Size()-cluster); err != nil {
		t.Error(err)
	}
}

type zeroes struct{}

func (zeroes) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
