package transfer

import (
	"archive/tar"
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/testing/nbdtest"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

// TestSourceIsAway: a source that is only away is waited for. The guest continues with what is there, the progress says what is
// waited for, and nothing is lost when the source is back.
func TestSourceIsAway(t *testing.T) {
	t.Parallel()
	image := disktest.Noise(24<<20, 21)
	f := &flaky{p: image, version: "1"}
	f.left.Store(6 << 20)
	u := &used{t: t, task: fromURL("", filepath.Join(t.TempDir(), "disk.img")), blob: f}
	u.task.Claim, u.task.Early = "claim-1", true
	u.run()
	c := u.dial()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // there is no event for it
		if e := u.work.Progress().Early; e != nil && strings.Contains(e.Away, "connection reset") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not say what it waits for: %+v", u.work.Progress())
		}
	}
	if err := c.Ask(nbdtest.Write, 1, 20<<20, 1<<16, bytes.Repeat([]byte{1}, 1<<16)); err != nil {
		t.Errorf("the guest cannot write: %v", err)
	}
	if _, err := c.ReadAt(make([]byte, 4096), 20<<20); err != nil {
		t.Errorf("the guest cannot read what is there: %v", err)
	}
	if _, err := c.ReadAt(make([]byte, 4096), 22<<20); err == nil {
		t.Error("the guest read what cannot be there")
	}
	if said := earlyboot.Away.Of(u.task.Target.Path); !strings.HasPrefix(said, "since ") || !strings.Contains(said, "connection reset") {
		t.Errorf("its launcher finds no word of it: %q", said)
	}
	f.left.Store(1 << 40)
	if _, err := c.ReadAt(make([]byte, 4096), 22<<20); err != nil {
		t.Errorf("the source is back: %v", err)
	}
	if said := earlyboot.Away.Of(u.task.Target.Path); said != "" {
		t.Errorf("the source is back, and the word of it is %q", said)
	}
	if err := c.Leave(); err != nil {
		t.Fatal(err)
	}
	if r := <-u.report; r.Outcome != task.Done {
		t.Fatalf("report %+v", r)
	}
	if e := u.work.Progress().Early; e.Away != "" {
		t.Errorf("it still says %q", e.Away)
	}
	wantBytes(t, u.task.Target.Path, append(append(bytes.Clone(image[:20<<20]), bytes.Repeat([]byte{1}, 1<<16)...), image[20<<20+1<<16:]...))
}

// TestUsedFromCompressedClusters: a qcow2 image on a plain web server, whose clusters are compressed, is used while it is filled, with its tables at the end too.
func TestUsedFromCompressedClusters(t *testing.T) {
	t.Parallel()
	disk := disktest.Text(9<<20, 4)
	for name, late := range map[string]bool{"tables first": false, "tables late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := disktest.QCOW2(t, disk, 7, true, late)
			s, url := newSlowly(t, image, 1<<20)
			u := use(t, url, nil)
			c := u.dial()
			if done := u.work.Progress().Done; done > int64(len(image))/2 {
				t.Errorf("%d bytes are there already: the test proves nothing", done)
			}
			want := bytes.Clone(disk)
			scribble(t, c, want, rand.New(rand.NewPCG(7, 8)), 80)
			s.rate.Store(1 << 40)
			if err := c.Leave(); err != nil {
				t.Fatal(err)
			}
			if r := <-u.report; r.Outcome != task.Done || r.Format != "qcow2" {
				t.Fatalf("report %+v", r)
			}
			wantBytes(t, u.task.Target.Path, want)
		})
	}
}

// TestUsedFromARegistry: a disk in a layer that is not compressed is used while it is filled like any other, and its layer's digest
// is compared in the end.
func TestUsedFromARegistry(t *testing.T) {
	t.Parallel()
	disk := disktest.Text(9<<20, 4)
	for name, content := range map[string][]byte{"raw": disk, "qcow2": disktest.QCOW2(t, disk, 1, true, true)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			layer := disktest.Tarball(t, disktest.Entry(tar.TypeDir, "disk/", ""), disktest.Entry(tar.TypeReg, "disk/disk.img", string(content)))
			at, err := url.Parse(strings.Replace(disktest.Push(t, layer), "docker:", "http:", 1))
			if err != nil {
				t.Fatal(err)
			}
			s := &slowly{}
			s.rate.Store(3 << 20)
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: at.Host})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxy.ServeHTTP(&paced{w, s}, r) }))
			t.Cleanup(server.Close)
			u := use(t, "", func(k *task.Task) {
				k.Source = task.Source{Registry: &task.Registry{URL: strings.Replace(server.URL, "http:", "docker:", 1) + at.Path, PlainHTTP: true}}
			})
			c := u.dial()
			if done := u.work.Progress().Done; done > int64(len(layer))/2 {
				t.Errorf("%d bytes are there already: the test proves nothing", done)
			}
			want := bytes.Clone(disk)
			scribble(t, c, want, rand.New(rand.NewPCG(5, 6)), 80)
			s.rate.Store(1 << 40)
			if err := c.Leave(); err != nil {
				t.Fatal(err)
			}
			if r := <-u.report; r.Outcome != task.Done || r.Format != name || r.Digest != sumOf(layer) {
				t.Fatalf("report %+v", r)
			}
			wantBytes(t, u.task.Target.Path, want)
		})
	}
	t.Run("two disks", func(t *testing.T) {
		t.Parallel()
		layer := disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/disk.img", string(disk)), disktest.Entry(tar.TypeReg, "disk/other.img", "x"))
		u := use(t, "", func(k *task.Task) {
			k.Source = task.Source{Registry: &task.Registry{URL: disktest.Push(t, layer), PlainHTTP: true}}
		})
		if r := <-u.report; r.Reason != task.BadImage {
			t.Errorf("report %+v", r)
		}
		if names, _ := os.ReadDir(filepath.Dir(u.task.Target.Path)); len(names) != 0 {
			t.Errorf("left behind: %v", names)
		}
	})
}

// TestCannotBeUsedEarly: what cannot be served says why, and is imported as ever.
func TestCannotBeUsedEarly(t *testing.T) {
	t.Parallel()
	image := disktest.Noise(1<<20, 11)
	weak := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "disk", time.Time{}, bytes.NewReader(image))
	}))
	t.Cleanup(weak.Close)
	layer := disktest.Gzip(t, disktest.Tarball(t, disktest.Entry(tar.TypeReg, "disk/disk.img", string(image))))
	for says, from := range map[string]task.Source{
		"compressed": {HTTP: &task.HTTP{URL: web(t, disktest.Gzip(t, image), "1")}}, "ETag": {HTTP: &task.HTTP{URL: weak.URL}},
		"layer": {Registry: &task.Registry{URL: disktest.Push(t, layer), PlainHTTP: true}},
	} {
		k := fromURL("", filepath.Join(t.TempDir(), "disk.img"))
		k.Claim, k.Early, k.Source = "claim-1", true, from
		w := New(k)
		r := w.Run(t.Context())
		if e := w.Progress().Early; r.Outcome != task.Done || e == nil || e.Serves || !strings.Contains(e.Cannot, says) || !strings.Contains(r.Detail, says) {
			t.Errorf("%s: progress says %+v, the report %+v", says, e, r)
		}
		wantDisk(t, k.Target.Path, image, len(image))
	}
}

// TestUsedFromAClone: a clone is used while it is made, from a worker on another node and from a claim beside it; what is zero at its
// source is not asked for.
func TestUsedFromAClone(t *testing.T) {
	t.Parallel()
	disk := append(append(disktest.Noise(2<<20, 31), make([]byte, 4<<20)...), disktest.Noise(2<<20, 32)...)
	tls, at := tlsDir(t), sparse(t, disk)
	for name, from := range map[string]task.Source{
		"another node": {Peer: &task.Peer{URL: serve(t, at, task.Disk, tls), TLSDir: tls}},
		"same node":    {Local: &task.Local{Path: at, Raw: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := use(t, "", func(k *task.Task) { k.Source = from })
			var r task.Report
			want := bytes.Clone(disk)
			if c := u.dialOrEnd(&r); c != nil {
				scribble(t, c, want, rand.New(rand.NewPCG(7, 8)), 60)
				if err := c.Leave(); err != nil {
					t.Fatal(err)
				}
				r = <-u.report
			} else if name == "another node" {
				t.Error("it was not served")
			}
			if r.Outcome != task.Done {
				t.Fatalf("report %+v", r)
			}
			wantBytes(t, u.task.Target.Path, want)
		})
	}
}
