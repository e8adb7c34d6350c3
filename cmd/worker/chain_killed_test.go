package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
)

const (
	links    = 10
	ofALink  = 4 << 20 // what a link has of the disk: the part with its number
	wholeSet = links * ofALink
)

// chainOfTen writes a backup and nine increments; each link has the data of its own part of the disk. It returns the disk at the last.
func chainOfTen(t *testing.T, dir string) []byte {
	t.Helper()
	raw, now := disk(wholeSet), make([]byte, wholeSet)
	for n := range links {
		from, to := n*ofALink, (n+1)*ofALink
		copy(now[from:to], raw[from:to])
		own := func(_ context.Context, f, u int64) ([][2]int64, error) {
			if begin, end := max(f, int64(from)), min(u, int64(to)); begin < end {
				return [][2]int64{{begin, end - begin}}, nil
			}
			return nil, nil
		}
		p := backup.Plan{Checkpoint: fmt.Sprintf("b%d", n), Created: time.Unix(int64(n), 0),
			Disks: []backup.Source{{Name: "root", Disk: encode.Disk{ReaderAt: bytes.NewReader(bytes.Clone(now)), Size: wholeSet, Data: own}}}}
		if n > 0 {
			p.Parent, p.Disks[0].Changed = fmt.Sprintf("b%d", n-1), own
		}
		if _, err := backup.Write(t.Context(), dir, p); err != nil {
			t.Fatal(err)
		}
	}
	return raw
}

// gate serves a set from its files, and stops in the middle of one of them.
type gate struct {
	dir string

	mu   sync.Mutex
	stop string        // the path of that file; empty: none
	at   chan struct{} // closed when it stops
	free chan struct{} // closed to go on
}

func (g *gate) arm(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free != nil {
		close(g.free)
	}
	g.stop, g.at, g.free = path, make(chan struct{}), make(chan struct{})
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(filepath.Join(g.dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(r.URL.Path, info.Size())))
	http.ServeContent(w, r, "file", info.ModTime(), &gated{ReadSeeker: f, g: g, path: r.URL.Path, half: info.Size() / 2})
}

// gated is a file that is read through the gate, and in no other way.
type gated struct {
	io.ReadSeeker
	g    *gate
	path string
	half int64
}

func (f *gated) Read(p []byte) (int, error) {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	f.g.mu.Lock()
	stops, free := f.g.stop == f.path && at+int64(len(p)) > f.half, f.g.free
	if stops {
		select {
		case <-f.g.at:
		default:
			close(f.g.at)
		}
	}
	f.g.mu.Unlock()
	if stops {
		<-free
	}
	return f.ReadSeeker.Read(p)
}

// TestKilledInEachLink kills the worker with SIGKILL in the middle of each link of a chain of ten; the next one continues with what was written, and makes the disk.
func TestKilledInEachLink(t *testing.T) {
	dir := t.TempDir()
	want := chainOfTen(t, dir)
	for n := range links {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			g := &gate{dir: dir}
			g.arm(fmt.Sprintf("/b%d/root.qcow2", n))
			server := httptest.NewServer(g)
			t.Cleanup(server.Close)
			t.Cleanup(func() { g.arm("") }) // before that, which waits for its requests
			k := task.Task{Version: task.Version, Volume: "ns/vol", Target: task.Target{Path: filepath.Join(t.TempDir(), "disk.img"), Content: task.Disk},
				Source: task.Source{Backup: &task.Backup{Set: task.Source{HTTP: &task.HTTP{URL: server.URL}}, Checkpoint: fmt.Sprintf("b%d", links-1), Disk: "root"}}}
			stopped := g.at
			cmd, path := start(t, k)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-stopped:
			case err := <-ended:
				t.Fatalf("the worker ended with %v before the middle was read: %+v", err, report(t, path))
			}
			sure := n > 0 && n < links-1 // nothing is done before the first, and behind the last nothing is that has a note written
			waitForNote(t, k.Target.Path, sure, func() {})
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-ended
			g.arm("")
			if _, err := os.Stat(k.Target.Path); err == nil {
				t.Fatal("half a disk has the name of a whole one")
			}
			if r := finishes(t, k, want); sure && r.Resumed == 0 {
				t.Errorf("nothing was continued: %+v", r)
			}
		})
	}
}
