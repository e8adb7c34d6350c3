//go:build host

package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/nbdtest"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
)

// slowObject serves p slowly enough that a worker is killed in the middle many times.
func slowObject(t *testing.T, p []byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		http.ServeContent(&slowWriter{w}, r, "disk", time.Time{}, bytes.NewReader(p))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

type slowWriter struct{ http.ResponseWriter }

func (s *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / (4 << 20)) //nolint:forbidigo // it is what the server is: slow
	return s.ResponseWriter.Write(p)
}

// earlyGuest uses a disk whose worker is killed now and then. What was not answered is asked again, as QEMU does.
type earlyGuest struct {
	t    *testing.T
	path string
	c    *nbdtest.Client
	// revive starts a worker if there is none.
	revive func()
}

func (g *earlyGuest) ask(command uint16, off int64, n int, data []byte) {
	g.t.Helper()
	for range 3000 {
		if g.c == nil {
			g.revive()
			c, err := nbdtest.Dial(earlyboot.Socket(g.path))
			if err != nil {
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // no event when a socket listens
				continue
			}
			g.c = c
		}
		err := g.c.Ask(command, 0, off, n, data)
		var lost net.Error
		switch {
		case err == nil:
			return
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.As(err, &lost):
			_ = g.c.Close()
			g.c = nil
		default:
			g.t.Fatal(err)
		}
	}
	g.t.Fatal("no worker answers")
}

// TestKilledWithAGuest kills a worker twenty times while a guest uses the disk that it fills. Every write that was answered is
// there, and all the rest is the image's.
func TestKilledWithAGuest(t *testing.T) {
	raw := disk(24 << 20)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "raw"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"raw": nil, "qcow2": {}, "compressed": {"-c"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := raw
			if args != nil {
				path := filepath.Join(dir, name)
				args = append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...), filepath.Join(dir, "raw"), path)
				if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
					t.Fatalf("qemu-img: %v\n%s", err, out)
				}
				var err error
				if image, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			killedWithGuest(t, slowObject(t, image), raw)
		})
	}
}

func killedWithGuest(t *testing.T, url string, raw []byte) {
	k := task.Task{Version: task.Version, Volume: "ns/vol", Claim: "claim", Early: true, Source: task.Source{HTTP: &task.HTTP{URL: url}},
		Target: task.Target{Path: filepath.Join(t.TempDir(), "disk.img"), Content: task.Disk}}
	want, rng := bytes.Clone(raw), rand.New(rand.NewPCG(8, 9))
	var cmd *exec.Cmd
	var reportPath string
	g := &earlyGuest{t: t, path: k.Target.Path, revive: func() {
		if cmd == nil {
			cmd, reportPath = start(t, k)
		}
	}}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		cmd = nil
	}
	for range 20 {
		for range 1 + rng.IntN(30) {
			scribbleOnce(t, g, want, rng)
		}
		if g.revive(); rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond) //nolint:forbidigo // killed at any time
		}
		kill()
	}
	for { // until everything is there
		scribbleOnce(t, g, want, rng)
		if _, err := os.Stat(k.Target.Path); err == nil {
			break
		}
	}
	kill() // complete, and the guest does not have the disk itself yet
	scribbleOnce(t, g, want, rng)
	g.ask(nbdtest.Flush, 0, 0, nil)
	if err := g.c.Leave(); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if r := report(t, reportPath); err != nil || r.Outcome != task.Done {
		t.Fatalf("%v: %+v", err, r)
	}
	got, err := os.ReadFile(k.Target.Path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(want); at += 4096 {
		if !bytes.Equal(got[at:at+4096], want[at:at+4096]) {
			t.Fatalf("the page at %d is not what it should be", at)
		}
	}
}

func scribbleOnce(t *testing.T, g *earlyGuest, want []byte, rng *rand.Rand) {
	t.Helper()
	n := 1 + rng.IntN(1<<(9+rng.IntN(9)))
	off := rng.IntN(len(want) - n)
	p := make([]byte, n)
	switch rng.IntN(4) {
	case 0:
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		g.ask(nbdtest.Write, int64(off), n, p)
		copy(want[off:], p)
	case 1:
		g.ask(nbdtest.Zeroes, int64(off), n, nil)
		clear(want[off : off+n])
	case 2:
		g.ask(nbdtest.Flush, 0, 0, nil)
	default:
		if g.ask(nbdtest.Read, int64(off), n, p); !bytes.Equal(p, want[off:off+n]) {
			t.Fatalf("%d bytes at %d are not what they should be", n, off)
		}
	}
}
