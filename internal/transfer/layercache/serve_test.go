package layercache

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/transfer/erofs"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// pair is two ends of a connection.
func pair(t *testing.T) (one, other *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// blob is a layer in a registry of the test.
type blob struct {
	data   []byte
	ranged bool
	read   atomic.Int64
}

func (b *blob) Info() source.Info { return source.Info{Size: int64(len(b.data)), Ranged: b.ranged} }
func (b *blob) Close() error      { return nil }
func (b *blob) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	if n < 0 {
		n = int64(len(b.data)) - off
	}
	b.read.Add(n)
	return io.NopCloser(bytes.NewReader(b.data[off : off+n])), nil
}
func (b *blob) digest() string {
	sum := sha256.Sum256(b.data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// packed returns a compressed layer with files of so many bytes that do not compress.
func packed(t testing.TB, seed uint64, files map[string]int) *blob {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, size := range files {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg}
		if to, ok := strings.CutPrefix(name, "link:"); ok {
			h = &tar.Header{Name: "hard-" + filepath.Base(to), Linkname: to, Typeflag: tar.TypeLink}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		r := rand.NewChaCha8([32]byte{byte(seed)})
		if _, err := io.CopyN(w, r, h.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return &blob{data: out.Bytes(), ranged: true}
}

var quick = Pace{Idle: 5 * time.Second, Slowest: 64 << 10, Grace: 20 * time.Second, Queue: 20 * time.Second, Make: 20 * time.Second, Share: 20 * time.Second, Word: 10 * time.Millisecond}

func newCache(t *testing.T, dir string, bound int64) *Cache {
	t.Helper()
	c, err := Open(dir, dir, bound, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// asker returns a connection to a cache, and what the cache made of it in the end.
func asker(t *testing.T, c *Cache, pace Pace) (*net.UnixConn, <-chan error) {
	t.Helper()
	one, other := pair(t)
	done := make(chan error, 1)
	go func() { done <- c.Serve(t.Context(), other, "team", pace) }()
	return one, done
}

// take asks for a whole image.
func take(t *testing.T, c *Cache, layers ...*blob) ([]Layer, []*os.File) {
	t.Helper()
	conn, done := asker(t, c, quick)
	var out []Layer
	var files []*os.File
	for _, b := range layers {
		l, f, err := Ask(t.Context(), conn, b.digest(), int64(len(b.data)), b)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		out, files = append(out, l), append(files, f)
	}
	_ = conn.Close()
	if err := <-done; err != nil {
		t.Errorf("the cache says %v of an asker who leaves", err)
	}
	return out, files
}

// TestOnceForAll: a layer that one client sent is given to the next, who only proves to have it; and it is the same as a machine
// makes for itself, byte for byte.
func TestOnceForAll(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	image := []*blob{packed(t, 1, map[string]int{"data/a": 600 << 10}), packed(t, 2, map[string]int{"data/b": 500 << 10, "link:data/a": 0}), packed(t, 3, map[string]int{"c": 10})}
	first, files := take(t, c, image...)
	for i, b := range image {
		if !first[i].Made || b.read.Swap(0) < int64(len(b.data)) {
			t.Errorf("layer %d was not made of what was sent", i)
		}
	}
	second, again := take(t, c, image...)
	for i, b := range image {
		if second[i].Made {
			t.Errorf("layer %d was made twice", i)
		}
		if got := b.read.Load(); i < 2 && got != 3*pieceSize+piece(int64(len(b.data)), pieces(int64(len(b.data)))-1) {
			t.Errorf("%d bytes of layer %d were read to prove that they can be", got, i)
		}
		second[i].Made = true
		one, err := io.ReadAll(io.NewSectionReader(files[i], 0, 1<<30))
		two, err2 := io.ReadAll(io.NewSectionReader(again[i], 0, 1<<30))
		if err != nil || err2 != nil || !bytes.Equal(one, two) || !bytes.Equal(one, made(t, image[:i+1])) {
			t.Errorf("layer %d differs: %v, %v", i, err, err2)
		}
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second is told something else:\n%s", diff)
	}
	// The same layer over another one is another file.
	other, _ := take(t, c, image[2:]...)
	if !other[0].Made {
		t.Error("a layer was taken for one that lies over others")
	}
}

// made returns the uppermost file of a stack as a machine makes it for itself.
func made(t *testing.T, image []*blob) []byte {
	t.Helper()
	var disk layerdisk.Disk
	var tree erofs.Tree
	var f *os.File
	for n, b := range image {
		var err error
		if f, err = os.CreateTemp(t.TempDir(), "own"); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(bytes.NewReader(b.data))
		if err != nil {
			t.Fatal(err)
		}
		disk, err = disk.Layer(f, layerdisk.LayerFile(n-1), imagevm.LayerName(n), func(w layerdisk.File) (int64, error) {
			made, err := erofs.Convert(z, w, &tree, erofs.DefaultLimits)
			return made.Size, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTwoAtOnce: two askers for a layer that is not there make it once.
func TestTwoAtOnce(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	b := packed(t, 1, map[string]int{"a": 2 << 20})
	var count atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		conn, done := asker(t, c, quick)
		all.Go(func() {
			defer func() { _ = conn.Close(); <-done }()
			l, f, err := Ask(t.Context(), conn, b.digest(), int64(len(b.data)), b)
			if err != nil {
				t.Error(err)
				return
			}
			_ = f.Close()
			if l.Made {
				count.Add(1)
			}
		})
	}
	all.Wait()
	if count.Load() != 1 {
		t.Errorf("it was made %d times", count.Load())
	}
	left(t, c, 3)
}

// left checks that the cache's directory has so many files, and that its counters match them.
func left(t *testing.T, c *Cache, want int) {
	t.Helper()
	all, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	sum := int64(0)
	for _, f := range all {
		names = append(names, f.Name())
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += stored(info)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(all) != want || c.taken != sum {
		t.Errorf("%d bytes are counted, %d taken by %q", c.taken, sum, names)
	}
}

// TestLiars: no client gets a layer by its name alone, learns whether it exists, or stores anything under a wrong name.
func TestLiars(t *testing.T) {
	b := packed(t, 1, map[string]int{"a": 600 << 10})
	wrong := func(at int) *blob {
		data := bytes.Clone(b.data)
		for i := at; i < len(data); i++ {
			data[i] ^= 1
		}
		return &blob{data: data, ranged: true}
	}
	size := int64(len(b.data))
	for _, there := range []bool{false, true} {
		c := newCache(t, t.TempDir(), 1<<30)
		files := 0
		if there {
			take(t, c, b)
			files = 3
		}
		for about, liar := range map[string]func(*net.UnixConn) error{
			"all wrong": func(conn *net.UnixConn) error {
				_, _, err := Ask(t.Context(), conn, b.digest(), size, wrong(0))
				return err
			},
			"the last piece wrong": func(conn *net.UnixConn) error {
				_, _, err := Ask(t.Context(), conn, b.digest(), size, wrong(len(b.data)-10))
				return err
			},
			"without ranges": func(conn *net.UnixConn) error {
				w := wrong(0)
				w.ranged = false
				_, _, err := Ask(t.Context(), conn, b.digest(), size, w)
				return err
			},
			"no digest": func(conn *net.UnixConn) error {
				_, _, err := Ask(t.Context(), conn, "sha256:../../etc/passwd", size, b)
				return err
			},
			"too large": func(conn *net.UnixConn) error {
				_, _, err := Ask(t.Context(), conn, b.digest(), largest+1, b)
				return err
			},
			"another version": func(conn *net.UnixConn) error {
				if err := say(conn, asked{Version: Version + 1, Digest: b.digest(), Size: size}, nil); err != nil {
					return err
				}
				a, _, err := told(conn)
				return errors.Join(err, fmt.Errorf("%w: %s", ErrRefused, a.Refused))
			},
		} {
			conn, done := asker(t, c, quick)
			if err := liar(conn); !errors.Is(err, ErrRefused) {
				t.Errorf("%s, there %v: %v", about, there, err)
			}
			<-done
			left(t, c, files)
		}
		conn, done := asker(t, c, quick)
		_, _, err := Ask(t.Context(), conn, b.digest(), size, wrong(0))
		if err == nil || !strings.HasSuffix(err.Error(), "it is not what its digest says") {
			t.Errorf("somebody who has only the digest learns whether it is there (%v): %v", there, err)
		}
		<-done
	}
}

// TestCut: an asker that leaves, says nothing or is slow leaves nothing behind.
func TestCut(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	b := packed(t, 1, map[string]int{"a": 600 << 10})
	hasty := Pace{Idle: 50 * time.Millisecond, Slowest: 1 << 40, Grace: 200 * time.Millisecond, Queue: time.Second, Make: time.Second, Share: time.Second, Word: time.Second}
	begin := func(pace Pace) (*net.UnixConn, <-chan error) {
		conn, done := asker(t, c, pace)
		if err := say(conn, asked{Version: Version, Digest: b.digest(), Size: int64(len(b.data))}, nil); err != nil {
			t.Fatal(err)
		}
		if a, _, err := told(conn); err != nil || !a.Send {
			t.Fatalf("%+v, %v", a, err)
		}
		if _, err := conn.Write(b.data[:packet]); err != nil {
			t.Fatal(err)
		}
		return conn, done
	}
	conn, done := begin(quick)
	_ = conn.Close()
	<-done
	left(t, c, 0)
	_, done = begin(hasty)
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of one who says no more: %v", err)
	}
	left(t, c, 0)
	conn, done = begin(hasty)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended; { // some bytes now and then
		select {
		case err := <-done:
			ended = true
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("of one who is slow: %v", err)
			}
		case <-tick.C:
			_, _ = conn.Write([]byte{0})
		}
	}
	left(t, c, 0)
	_, done = asker(t, c, hasty)
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of one who never says anything: %v", err)
	}
}

// TestNoArchive: what is no layer is refused, and the cache continues.
func TestNoArchive(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	for _, data := range [][]byte{[]byte("no archive"), bytes.Repeat([]byte{0x1f, 0x8b, 8, 0}, 500<<10)} {
		conn, done := asker(t, c, quick)
		b := &blob{data: data, ranged: true}
		if _, _, err := Ask(t.Context(), conn, b.digest(), int64(len(data)), b); !errors.Is(err, ErrRefused) {
			t.Errorf("%.10q: %v", data, err)
		}
		<-done
		left(t, c, 0)
	}
	take(t, c, packed(t, 1, map[string]int{"a": 1}))
}
