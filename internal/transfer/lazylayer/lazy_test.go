package lazylayer

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// layer is a blob in memory that counts what is read of it.
type layer struct {
	mu     sync.Mutex
	data   []byte
	read   int64
	damage bool // another byte at the end of each read
}

func (l *layer) Info() source.Info {
	sum := sha256.Sum256(l.data)
	return source.Info{Name: "test", Size: int64(len(l.data)), Ranged: true, Member: &source.Member{Digest: "sha256:" + hex.EncodeToString(sum[:])}}
}

func (l *layer) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 {
		n = int64(len(l.data)) - off
	}
	b := bytes.Clone(l.data[off : off+n])
	if l.damage && n > 0 {
		b[n-1] ^= 1
	}
	return &counted{l, bytes.NewReader(b)}, nil
}

func (l *layer) Close() error { return nil }

func (l *layer) taken() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read
}

type counted struct {
	l *layer
	r io.Reader
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p[:min(len(p), 64<<10)])
	c.l.mu.Lock()
	c.l.read += int64(n)
	c.l.mu.Unlock()
	return n, err
}

func (c *counted) Close() error { return nil }

// words compresses to about a half.
func words(n int) []byte {
	p, r := make([]byte, n), rand.New(rand.NewPCG(3, 4))
	for i := range p {
		p[i] = "abcdefghijklmnop"[r.IntN(16)]
	}
	return p
}

func packed(t testing.TB, p []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func opened(t testing.TB, dir string, b source.Blob) (*Cache, *Layer) {
	t.Helper()
	c, err := OpenCache(dir, LeastCache)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

func same(t *testing.T, l *Layer, want []byte, off, n int) {
	t.Helper()
	p := make([]byte, n)
	if got, err := l.ReadAt(p, int64(off)); got != n || err != nil {
		t.Fatalf("%d bytes at %d: %d, %v", n, off, got, err)
	}
	if !bytes.Equal(p, want[off:off+n]) {
		t.Fatalf("%d bytes at %d differ", n, off)
	}
}

func inDir(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// TestFetchedOnce: a pass brings each byte once, what was passed is not fetched again, and two who want the same have one layer.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	plain := words(9 << 20)
	for name, data := range map[string][]byte{"plain": plain, "gz": packed(t, plain)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &layer{data: data}
			c, l := opened(t, t.TempDir(), b)
			second, err := c.Open(t.Context(), b)
			if err != nil || second != l {
				t.Fatalf("it is opened twice: %v", err)
			}
			l.Begin(nil)
			same(t, l, plain, 5<<20, 100_000)
			l.Settled()
			if s := l.State(); !s.Proven {
				t.Fatalf("%+v", s)
			}
			for off := 0; off < len(plain); off += 1 << 20 {
				same(t, l, plain, off, 1<<20)
			}
			// Besides the pass, the first bytes twice, and what was wanted before the pass came by.
			if most := int64(len(data)) + 3*pieceSize; b.taken() > most {
				t.Errorf("%d bytes were fetched of %d", b.taken(), len(data))
			}
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
			same(t, l, plain, 0, 10)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBounded: a layer larger than the cache leaves no more than the limit there, and is read all the same.
func TestBounded(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	plain := words(10 << 20)
	dir := t.TempDir()
	c, err := openCache(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Open(t.Context(), &layer{data: packed(t, plain)})
	if err != nil {
		t.Fatal(err)
	}
	l.Begin(nil)
	l.Settled()
	if got := inDir(t, dir); got > limit || c.Used() > limit {
		t.Errorf("there are %d bytes, and %d are counted, of %d", got, c.Used(), limit)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 4 {
		same(t, l, plain, r.IntN(len(plain)-300_000), 300_000)
	}
	if got := inDir(t, dir); got > limit {
		t.Errorf("there are %d bytes of %d", got, limit)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err = openCache(dir, limit); err != nil {
		t.Fatal(err)
	}
	if got := inDir(t, dir); got != c.Used() {
		t.Errorf("%d bytes are counted, and there are %d", c.Used(), got)
	}
}

// TestDamagedPiece: a piece of the cache that is not what it was is fetched again.
func TestDamagedPiece(t *testing.T) {
	t.Parallel()
	plain, dir := words(3<<20), t.TempDir()
	b := &layer{data: packed(t, plain)}
	_, l := opened(t, dir, b)
	l.Begin(nil)
	l.Settled()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, l.name, "3"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, l = opened(t, dir, b)
	same(t, l, plain, 3*pieceSize, pieceSize)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRefetched: what is fetched again of a layer that was proven is compared before it is handed out, and a lie about it is not
// the end of the layer.
func TestRefetched(t *testing.T) {
	t.Parallel()
	plain := words(3 << 20)
	b := &layer{data: plain}
	_, l := opened(t, t.TempDir(), b)
	defer l.Close()
	l.Begin(nil)
	l.Settled()
	l.Forget()
	b.mu.Lock()
	b.damage = true
	b.mu.Unlock()
	if _, err := l.ReadAt(make([]byte, 100), 1<<20); !task.Is(err, task.SourceChanged) || errors.Is(err, ErrCondemned) {
		t.Errorf("%v", err)
	}
	b.mu.Lock()
	b.damage = false
	b.mu.Unlock()
	same(t, l, plain, 1<<20, 100)
}

// TestTwoAnswers: a registry that gives two answers about a piece before the digest is known condemns the layer.
func TestTwoAnswers(t *testing.T) {
	t.Parallel()
	b := &layer{data: words(3 << 20)}
	_, l := opened(t, t.TempDir(), b)
	defer l.Close()
	same(t, l, b.data, 1<<20, 100)
	l.Forget()
	b.mu.Lock()
	b.damage = true
	b.mu.Unlock()
	for range 2 {
		if _, err := l.ReadAt(make([]byte, 100), 1<<20); !errors.Is(err, ErrCondemned) {
			t.Errorf("%v", err)
		}
	}
}

// TestUnfinished: what there is of a layer whose pass did not end is gone after a restart, whatever else is in the directory.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), &layer{data: words(3 << 20)}
	_, l := opened(t, dir, b)
	same(t, l, b.data, 0, 100)
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil { // the process dies: nothing is closed
		t.Fatal(err)
	}
	c, again := opened(t, dir, b)
	defer again.Close()
	if c.Used() != 0 || again.State().Proven {
		t.Errorf("%d bytes, %+v", c.Used(), again.State())
	}
	if _, err := os.Stat(filepath.Join(dir, "lost+found")); err != nil {
		t.Error(err)
	}
	l.stop()
}

// FuzzIndex reads any index: it is taken for what it is, or not at all.
func FuzzIndex(f *testing.F) {
	plain := words(2 << 20)
	data := packed(f, plain)
	dir := f.TempDir()
	_, l := opened(f, dir, &layer{data: data})
	l.Begin(nil)
	l.Settled()
	text, err := os.ReadFile(filepath.Join(dir, l.name, indexName))
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"kind":"","plain":3,"sums":""}`))
	f.Add([]byte(`{"kind":"gz","plain":-1,"places":[{"in":-1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, l.name), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{indexName: text, statesName: make([]byte, 40<<10)} {
			if err := os.WriteFile(filepath.Join(dir, l.name, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, l := opened(t, dir, &layer{data: data})
		defer l.Close()
		if l.State().Proven {
			_, _ = l.ReadAt(make([]byte, 100), 1<<20) // the directory is ours alone: any answer, no panic
		}
	})
}
