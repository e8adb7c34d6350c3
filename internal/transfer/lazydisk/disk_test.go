package lazydisk

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/chunked"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/lazylayer"
)

// streamCache returns an empty one.
func streamCache(t *testing.T, dir string) *lazylayer.Cache {
	t.Helper()
	c, err := lazylayer.OpenCache(dir, lazylayer.LeastCache)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func streamed(t *testing.T, at string, cache *lazylayer.Cache) *Disk {
	t.Helper()
	d, err := Open(t.Context(), task.Registry{URL: at, PlainHTTP: true}, cache)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// settled waits until the layer is proven or condemned.
func settled(t *testing.T, d *Disk) lazylayer.State {
	t.Helper()
	d.begin()
	d.Settled()
	return d.State()
}

// reads compares parts of the disk, some of them twice.
func reads(t *testing.T, d *Disk, want []byte, times int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for range times {
		off := r.IntN(len(want))
		p := make([]byte, min(1+r.IntN(300_000), len(want)-off))
		if n, err := d.ReadAt(p, int64(off)); n != len(p) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %d, %v", len(p), off, n, err)
		}
		if !bytes.Equal(p, want[off:off+len(p)]) {
			t.Fatalf("%d bytes at %d differ", len(p), off)
		}
	}
}

// frames is p in frames of zstd, as tools make them that want to read anywhere.
func frames(t testing.TB, p []byte, each int) []byte {
	var out []byte
	for len(p) > 0 {
		n := min(each, len(p))
		out = append(out, disktest.Zstd(t, p[:n])...)
		p = p[n:]
	}
	return out
}

// TestStreamed: the disk in an image is read anywhere, whatever its format and however its layer is compressed, is proven in the end,
// and is read by the next process without another pass.
func TestStreamed(t *testing.T) {
	t.Parallel()
	disk := disktest.Text(5<<20+512, 4)
	layer := func(content []byte) []byte {
		return disktest.Tarball(t, disktest.Entry(tar.TypeDir, "disk/", ""), disktest.Entry(tar.TypeReg, "disk/disk.img", string(content)), disktest.Entry(tar.TypeReg, "etc/x", "x"))
	}
	raw, cow := layer(disk), layer(disktest.QCOW2(t, disk, 1, true, true))
	for name, content := range map[string][]byte{
		"raw": raw, "qcow2": cow, "raw.gz": disktest.Gzip(t, raw), "qcow2.gz": disktest.Gzip(t, cow), "raw.zst": disktest.Zstd(t, raw), "raw in frames": frames(t, raw, 2<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, dir := disktest.Push(t, content), t.TempDir()
			d := streamed(t, at, streamCache(t, dir))
			if d.Size() != int64(len(disk)) {
				t.Fatalf("%d bytes instead of %d", d.Size(), len(disk))
			}
			reads(t, d, disk, 40)
			if s := settled(t, d); !s.Proven || s.Condemned != nil {
				t.Fatalf("%+v", s)
			}
			reads(t, d, disk, 40)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = streamed(t, at, streamCache(t, dir))
			if s := d.State(); !s.Proven {
				t.Errorf("it was forgotten: %+v", s)
			}
			reads(t, d, disk, 40)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStreamedByTable: the manifest's word about a table of contents comes to where it is used.
func TestStreamedByTable(t *testing.T) {
	t.Parallel()
	disk := disktest.Text(3<<20+512, 4)
	for _, kind := range []decode.Kind{decode.Zstd, decode.Gzip} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			l := chunked.New(t, kind, disk, 200_000, chunked.Lies{})
			want := fmt.Sprintf("bytes=%d-%d", len(l.Data)-51, len(l.Data)-1) // where eStargz says it
			if at := strings.Split(l.Annotations["io.github.containers.zstd-chunked.manifest-position"], ":"); len(at) > 1 {
				want = "bytes=" + at[0] + "-"
			}
			var asked atomic.Bool
			at := through(t, disktest.PushAnnotated(t, l.Annotations, l.Data), func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
				if strings.HasPrefix(r.Header.Get("Range"), want) {
					asked.Store(true)
				}
				return w
			})
			d := streamed(t, at, streamCache(t, t.TempDir()))
			reads(t, d, disk, 20)
			if s := settled(t, d); !s.Proven || s.NoTable != nil {
				t.Fatalf("%+v", s)
			}
			reads(t, d, disk, 20)
			if !asked.Load() {
				t.Error("nobody asked for the table")
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// through returns a registry behind something that may change what it says.
func through(t *testing.T, at string, change func(http.ResponseWriter, *http.Request) http.ResponseWriter) string {
	t.Helper()
	u, err := url.Parse(strings.Replace(at, "docker:", "http:", 1))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: u.Host})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w = change(w, r); w != nil {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http:", "docker:", 1) + u.Path
}

// liar flips the bytes it sends.
type liar struct{ http.ResponseWriter }

func (l *liar) Write(p []byte) (int, error) {
	q := bytes.Clone(p)
	for i := range q {
		q[i] ^= 1
	}
	return l.ResponseWriter.Write(q)
}

// TestStreamedLies: bytes that are not those of the digest are handed out until the pass is over, and nothing after that.
func TestStreamedLies(t *testing.T) {
	t.Parallel()
	disk := disktest.Noise(3<<20, 4)
	content := disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/disk.img", string(disk)))
	at := through(t, disktest.Push(t, content), func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
		if strings.HasPrefix(r.Header.Get("Range"), "bytes=1048576-") { // a piece in the middle
			return &liar{w}
		}
		return w
	})
	dir := t.TempDir()
	d := streamed(t, at, streamCache(t, dir))
	p := make([]byte, 4096)
	if _, err := d.ReadAt(p, 2<<20); err != nil || !bytes.Equal(p, disk[2<<20:][:4096]) {
		t.Fatalf("what is right and not verified yet: %v", err)
	}
	if s := settled(t, d); s.Proven || !errors.Is(s.Condemned, lazylayer.ErrCondemned) || !task.Is(s.Condemned, task.ChecksumMismatch) {
		t.Fatalf("%+v", s)
	}
	if _, err := d.ReadAt(p, 2<<20); !errors.Is(err, lazylayer.ErrCondemned) {
		t.Errorf("read after it was condemned: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if c := streamCache(t, dir); c.Used() != 0 {
		t.Errorf("%d bytes of it were kept", c.Used())
	}
}

// TestStreamedTwoDisks: an image with two disks is found out on the pass.
func TestStreamedTwoDisks(t *testing.T) {
	t.Parallel()
	content := disktest.Gzip(t, disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/a.img", string(disktest.Noise(1<<20, 1))), disktest.Entry(tar.TypeReg, "disk/b.img", "x")))
	d, err := Open(t.Context(), task.Registry{URL: disktest.Push(t, content), PlainHTTP: true}, streamCache(t, t.TempDir()))
	if err == nil { // the pass may be faster
		defer d.Close()
		err = settled(t, d).Condemned
	}
	if !task.Is(err, task.BadImage) || !errors.Is(err, lazylayer.ErrCondemned) {
		t.Errorf("%v", err)
	}
}

// TestStreamedAway: a registry that is away in the middle costs time. Reads say that it is away, and later succeed.
func TestStreamedAway(t *testing.T) {
	t.Parallel()
	disk := disktest.Noise(6<<20, 4)
	content := disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/disk.img", string(disk)))
	var away atomic.Bool
	at := through(t, disktest.Push(t, disktest.Gzip(t, content)), func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return nil
		}
		return w
	})
	d := streamed(t, at, streamCache(t, t.TempDir()))
	defer d.Close()
	if s := settled(t, d); !s.Proven {
		t.Fatalf("%+v", s)
	}
	d.layer.Forget()
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := d.ReadAt(make([]byte, 4096), 5<<20)
		got <- err
	}()
	select {
	case err := <-got:
		if !lazylayer.Away(err) {
			t.Errorf("%v", err)
		}
	case <-ctx.Done():
		t.Fatal("the read does not come back")
	}
	away.Store(false)
	reads(t, d, disk, 10)
}

// TestStreamedRefusals: what cannot be read anywhere is refused when it is opened.
func TestStreamedRefusals(t *testing.T) {
	t.Parallel()
	disk := disktest.Noise(1<<20, 4)
	for name, c := range map[string]struct {
		content []byte
		want    task.Reason
	}{
		"compressed twice": {disktest.Gzip(t, disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/disk.img.gz", string(disktest.Gzip(t, disk))))), task.UnsupportedImage},
		"no disk":          {disktest.Gzip(t, disktest.Tarball(t, disktest.Entry(tar.TypeReg, "etc/passwd", "x"))), task.BadImage},
		"empty":            {disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/disk.img", "")), task.BadImage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Open(t.Context(), task.Registry{URL: disktest.Push(t, c.content), PlainHTTP: true}, streamCache(t, t.TempDir()))
			if !task.Is(err, c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
