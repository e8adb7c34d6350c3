package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// web serves p as one version of one object.
func web(t *testing.T, p []byte, version string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+version+`"`)
		http.ServeContent(w, r, "disk", time.Time{}, bytes.NewReader(p))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func fromURL(url, to string) task.Task {
	return task.Task{Version: task.Version, Volume: "ns/vol", Source: task.Source{HTTP: &task.HTTP{URL: url}},
		Target: task.Target{Path: to, Content: task.Disk}}
}

func sumOf(p []byte) string {
	s := sha256.Sum256(p)
	return "sha256:" + hex.EncodeToString(s[:])
}

// wantDisk checks that the disk is p followed by zeroes up to size, and that nothing else is left beside it.
func wantDisk(t *testing.T, path string, p []byte, size int) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != size || !bytes.Equal(got[:len(p)], p) || len(bytes.Trim(got[len(p):], "\x00")) != 0 {
		t.Fatalf("the disk has %d bytes and is not the image of %d grown to %d", len(got), len(p), size)
	}
	if names := leftovers(t, path); len(names) != 0 {
		t.Errorf("left beside the disk: %q", names)
	}
}

func leftovers(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestRawOverHTTP(t *testing.T) {
	want := disktest.Noise(11_000_003, 1)
	for name, c := range map[string]struct {
		checksum string
		size     int64
		pre      bool
	}{
		"as it is":     {},
		"checked":      {checksum: sumOf(want)},
		"grown":        {size: 16 << 20},
		"preallocated": {size: 16 << 20, pre: true, checksum: sumOf(want)},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL(web(t, want, "1"), to)
			k.Checksum, k.Target.Size, k.Target.Preallocate = c.checksum, c.size, c.pre
			r := New(k).Run(t.Context())
			if r.Outcome != task.Done || r.Digest != c.checksum || r.Format != "raw" {
				t.Fatalf("report %+v", r)
			}
			wantDisk(t, to, want, max(len(want), int(c.size)))
		})
	}
}

func TestRefusals(t *testing.T) {
	disk := disktest.Noise(3<<20, 1)
	for name, c := range map[string]struct {
		change func(*task.Task)
		reason task.Reason
		detail string
	}{
		"wrong checksum": {func(k *task.Task) { k.Checksum = sumOf(nil) }, task.ChecksumMismatch, "checksum mismatch"},
		"does not fit": {func(k *task.Task) { k.Target.Size = 2 << 20 }, task.DoesNotFit,
			"virtual image size 3145728 is larger than the reported available storage 2097152. A larger PVC is required"},
		"no algorithm":  {func(k *task.Task) { k.Checksum = "crc32:00" }, task.BadTask, "crc32:00"},
		"other version": {func(k *task.Task) { k.Version = 99 }, task.BadTask, "task version 99"},
		"no source":     {func(k *task.Task) { k.Source = task.Source{} }, task.BadTask, "0 sources"},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL(web(t, disk, "1"), to)
			c.change(&k)
			r := New(k).Run(t.Context())
			if r.Reason != c.reason || r.Outcome != task.Fatal || !strings.Contains(r.Detail, c.detail) {
				t.Fatalf("report %+v, want %s with %q", r, c.reason, c.detail)
			}
			if names, _ := os.ReadDir(filepath.Dir(to)); len(names) != 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}

// flaky is a blob in memory that ends with an error after a number of bytes, and counts what is read.
type flaky struct {
	p       []byte
	version string
	left    atomic.Int64 // bytes until it breaks
	reads   atomic.Int64
}

var errBroken = &task.Error{Reason: task.SourceUnreachable, Err: errors.New("connection reset")}

func (f *flaky) Info() source.Info {
	return source.Info{Name: "flaky", Size: int64(len(f.p)), Ranged: true, Version: f.version}
}
func (f *flaky) Close() error { return nil }
func (f *flaky) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	if n < 0 {
		n = int64(len(f.p)) - off
	}
	return io.NopCloser(&flakyReader{f, bytes.NewReader(f.p[off : off+n])}), nil
}

type flakyReader struct {
	f *flaky
	r *bytes.Reader
}

func (r *flakyReader) Read(p []byte) (int, error) {
	if r.f.left.Load() <= 0 {
		return 0, errBroken
	}
	n, err := r.r.Read(p[:min(len(p), 64<<10)])
	r.f.left.Add(int64(-n))
	r.f.reads.Add(int64(n))
	return n, err
}

func TestResumeRaw(t *testing.T) {
	want := disktest.Noise(40<<20, 3)
	to := filepath.Join(t.TempDir(), "disk.img")
	k := fromURL("http://not.used", to)
	k.Checksum = sumOf(want)

	first := &flaky{p: want, version: "v1"}
	first.left.Store(30 << 20)
	r := New(k).RunFrom(t.Context(), first)
	if r.Outcome != task.Retry || r.Reason != task.SourceUnreachable {
		t.Fatalf("report of the broken run: %+v", r)
	}
	if _, err := os.Stat(to); err == nil {
		t.Fatal("half a disk has the name of a whole one")
	}

	second := &flaky{p: want, version: "v1"}
	second.left.Store(1 << 40)
	r = New(k).RunFrom(t.Context(), second)
	if r.Outcome != task.Done || r.Resumed < 8<<20 {
		t.Fatalf("report of the second run: %+v", r)
	}
	if again := second.reads.Load(); again > int64(len(want))-r.Resumed+1<<20 {
		t.Errorf("the second run read %d bytes although %d were done", again, r.Resumed)
	}
	wantDisk(t, to, want, len(want))
}

func TestChangedSourceStartsOver(t *testing.T) {
	old, want := disktest.Noise(40<<20, 3), disktest.Noise(40<<20, 4)
	to := filepath.Join(t.TempDir(), "disk.img")
	k := fromURL("http://not.used", to)
	first := &flaky{p: old, version: "v1"}
	first.left.Store(30 << 20)
	if r := New(k).RunFrom(t.Context(), first); r.Outcome != task.Retry {
		t.Fatalf("report of the broken run: %+v", r)
	}
	second := &flaky{p: want, version: "v2"}
	second.left.Store(1 << 40)
	r := New(k).RunFrom(t.Context(), second)
	if r.Outcome != task.Done || r.Resumed != 0 || !strings.Contains(r.Detail, "source changed") {
		t.Fatalf("report: %+v", r)
	}
	wantDisk(t, to, want, len(want))
}

func TestInterruptKeepsWhatIsDone(t *testing.T) {
	want := disktest.Noise(40<<20, 5)
	to := filepath.Join(t.TempDir(), "disk.img")
	k := fromURL("http://not.used", to)
	ctx, cancel := context.WithCancel(t.Context())
	first := &stopping{flaky: &flaky{p: want, version: "v1"}, at: 24 << 20, stop: cancel}
	first.left.Store(1 << 40)
	r := New(k).RunFrom(ctx, first)
	if r.Outcome != task.Retry || r.Reason != task.Interrupted {
		t.Fatalf("report of the interrupted run: %+v", r)
	}
	second := &flaky{p: want, version: "v1"}
	second.left.Store(1 << 40)
	r = New(k).RunFrom(t.Context(), second)
	if r.Outcome != task.Done || r.Resumed == 0 {
		t.Fatalf("report: %+v", r)
	}
	wantDisk(t, to, want, len(want))
}

// stopping ends the transfer from outside when a certain byte is asked for.
type stopping struct {
	*flaky
	at   int64
	stop func()
}

// unit is how much package sweep fetches at a time.
const unit = 4 << 20

func (s *stopping) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off >= s.at && n == unit { // not the look at the image's head and tail
		s.stop()
		return nil, ctx.Err()
	}
	return s.flaky.Open(ctx, off, n)
}

func TestBlank(t *testing.T) {
	to := filepath.Join(t.TempDir(), "disk.img")
	r := New(task.Task{Version: task.Version, Source: task.Source{Blank: &task.Blank{}},
		Target: task.Target{Path: to, Content: task.Disk, Size: 5 << 20}}).Run(t.Context())
	if r.Outcome != task.Done || r.Virtual != 5<<20 {
		t.Fatalf("report %+v", r)
	}
	wantDisk(t, to, nil, 5<<20)
}
