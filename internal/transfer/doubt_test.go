package transfer

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// TestWeakSourceStartsOver: what was read of a source that cannot tell its versions apart is not continued without a checksum,
// which the report says; and what was left for one claim is not continued for another of the same name.
func TestWeakSourceStartsOver(t *testing.T) {
	p := disktest.Noise(40<<20, 3)
	weak := source.Info{Name: "http://images/disk", Size: int64(len(p)), Ranged: true, Version: "modified:now size:1", Weak: "changed just now"}
	for name, row := range map[string]struct {
		info     source.Info
		checksum string
		claim    string // of the second run
		resumed  bool
		says     string
	}{
		"strong":            {source.Info{Name: weak.Name, Size: weak.Size, Ranged: true, Version: "etag:1"}, "", "a", true, ""},
		"weak":              {weak, "", "a", false, "http://images/disk changed just now: what is read of it at different times may not belong together"},
		"weak and checked":  {weak, sumOf(p), "a", true, ""},
		"of another claim":  {source.Info{Name: weak.Name, Size: weak.Size, Ranged: true, Version: "etag:1"}, "", "b", false, ""},
		"checked, another":  {weak, sumOf(p), "b", false, ""},
		"no version at all": {source.Info{Name: weak.Name, Size: weak.Size, Ranged: true, Weak: "says nothing"}, "", "a", false, "says nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL("http://images/disk", to)
			k.Checksum, k.Claim = row.checksum, "a"
			blob := &flaky{p: p}
			blob.left.Store(30 << 20)
			if r := New(k).RunFrom(t.Context(), source.WithInfo(blob, row.info)); r.Reason != task.SourceUnreachable {
				t.Fatalf("the first run: %+v", r)
			}
			blob.left.Store(1 << 40)
			k.Claim = row.claim
			r := New(k).RunFrom(t.Context(), source.WithInfo(blob, row.info))
			if r.Outcome != task.Done || (r.Resumed > 0) != row.resumed || !strings.Contains(r.Detail, row.says) || row.says == "" && r.Detail != "" {
				t.Errorf("the second run: %+v", r)
			}
			wantDisk(t, to, p, len(p))
		})
	}
}

// TestWebPages: a page behind a URL is not a raw disk, unless the volume says so.
func TestWebPages(t *testing.T) {
	page := "\n <!DOCTYPE html>\n<html><title>Sign in</title></html>" + strings.Repeat("x", 1000)
	for name, row := range map[string]struct {
		body      string
		mediaType string
		stream    bool
		raw       bool
		says      string // empty: it is taken
	}{
		"page":             {body: page, says: `is a web page, not a disk image: it is called text/html by its server and begins with "<!DOCTYPE html>`},
		"called binary":    {body: page, mediaType: "application/octet-stream", says: `is a web page, not a disk image: it begins with "<!DOCTYPE html>`},
		"streamed page":    {body: page, stream: true, says: "is a web page"},
		"gzipped page":     {body: string(disktest.Gzip(t, []byte(page))), mediaType: "application/gzip", says: "is a web page"},
		"with a BOM":       {body: "\xef\xbb\xbf<HTML lang=de>", says: "is a web page"},
		"comment first":    {body: "<!-- maintenance --><html>", says: "is a web page"},
		"xhtml":            {body: `<?xml version="1.0"?><!DOCTYPE html PUBLIC "x"><html>`, says: "is a web page"},
		"called a page":    {body: strings.Repeat("\x00", 4096), mediaType: "text/html; charset=utf-8", says: `is called text/html by its server and begins with "\x00`},
		"xml":              {body: `<?xml version="1.0"?><domain/>`, mediaType: "application/octet-stream"},
		"text":             {body: "a disk may begin like this", mediaType: "text/plain"},
		"angle bracket":    {body: "<htmlx", mediaType: "application/octet-stream"},
		"page that is raw": {body: page, mediaType: "text/html", raw: true},
		"streamed, raw":    {body: page, mediaType: "text/html", stream: true, raw: true},
		"gzip that is raw": {body: string(disktest.Gzip(t, []byte("x"))), raw: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.mediaType != "" {
					w.Header().Set("Content-Type", row.mediaType)
				}
				w.Header().Set("ETag", `"1"`)
				if row.stream {
					r.Header.Del("Range")
				}
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(row.body)))
			}))
			defer s.Close()
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL(s.URL+"/disk.img", to)
			k.Raw = row.raw
			r := New(k).Run(t.Context())
			if row.says != "" {
				if r.Reason != task.BadImage || r.Outcome != task.Fatal || !strings.Contains(r.Detail, row.says) ||
					!strings.Contains(r.Detail, "/disk.img") || !strings.Contains(r.Detail, "berth.dev/contents: raw") {
					t.Errorf("got %+v, want %q", r, row.says)
				}
				return
			}
			if r.Outcome != task.Done {
				t.Fatalf("refused: %+v", r)
			}
			got, err := os.ReadFile(to)
			if err != nil || !bytes.HasPrefix(got, []byte(row.body)) || r.Format != "raw" {
				t.Errorf("%d bytes, format %s, %v", len(got), r.Format, err)
			}
		})
	}
}

// TestPageOfImage: an image that its server calls a page is still an image; an upload is whatever it is.
func TestPageOfImage(t *testing.T) {
	disk := disktest.Noise(1<<20, 5)
	image := disktest.QCOW2(t, disk, 1, false, false)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(image))
	}))
	defer s.Close()
	to := filepath.Join(t.TempDir(), "disk.img")
	if r := New(fromURL(s.URL, to)).Run(t.Context()); r.Outcome != task.Done || r.Format != "qcow2" {
		t.Errorf("got %+v", r)
	}
	wantDisk(t, to, disk, len(disk))
	k := task.Task{Version: task.Version, Source: task.Source{Upload: &task.Upload{}},
		Target: task.Target{Path: filepath.Join(t.TempDir(), "disk.img"), Content: task.Disk}}
	if r := New(k).RunFrom(t.Context(), inMemory([]byte("<html>"), "1")); r.Outcome != task.Done {
		t.Errorf("an upload: %+v", r)
	}
}
