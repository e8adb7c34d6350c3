package launcher

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// meetCache introduces a launcher that waits in dir to the cache, as the node's agent does.
func meetCache(t *testing.T, dir string, c *layercache.Cache) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, rendezvous.LayersSocket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	side := t.TempDir()
	l, err := rendezvous.Serve(side, func(c2 *net.UnixConn) bool {
		go func() { _ = c.Serve(t.Context(), c2, "team", layercache.DefaultPace) }()
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cache, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(side, rendezvous.Socket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if err := rendezvous.IntroduceCache(cache, conn, "team"); err != nil {
		t.Fatal(err)
	}
}

// TestNodeLayers: a stack of the node's layers is the one that a machine makes for itself, and one machine's layers are the next one's.
func TestNodeLayers(t *testing.T) {
	kept := t.TempDir()
	c, err := layercache.Open(kept, kept, 1<<30, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	img := pulledImage(t, []string{"a"}, []string{".wh..wh..opq", "b"}, []string{"c"})
	own, from, err := pile(t.Context(), img, t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first []uint64
	for range 2 {
		meet, dir := t.TempDir(), t.TempDir()
		door := (&maker{log: slog.New(slog.DiscardHandler)}).cacheDoor("root", meet)
		meetCache(t, meet, c)
		b, counts, err := pile(t.Context(), img, dir, nil, door)
		door.close()
		if err != nil || counts != from {
			t.Fatalf("the lowest layer that counts is %d, %v", counts, err)
		}
		var files []uint64
		for here, there := &own, &b; here != nil; here, there = here.Master, there.Master {
			one, err := os.ReadFile(here.Path)
			two, err2 := os.ReadFile(there.Path)
			if err != nil || err2 != nil || string(one) != string(two) {
				t.Errorf("%s differs: %v, %v", filepath.Base(here.Path), err, err2)
			}
			if filepath.Base(there.Path) == "top.qcow2" {
				continue
			}
			info, err := os.Stat(there.Path)
			if err != nil || there.NodeFile == nil {
				t.Fatalf("%s is not the node's: %v", there.Path, err)
			}
			files = append(files, info.Sys().(*syscall.Stat_t).Ino)
		}
		if first == nil {
			first = files
		}
		for i := range files {
			if len(files) != 3 || files[i] != first[i] {
				t.Errorf("the second machine has other files: %v, %v", first, files)
			}
		}
	}
}

// TestNodeRefuses: a machine whose node has no room, or whose cache is gone, makes its layers itself.
func TestNodeRefuses(t *testing.T) {
	kept := t.TempDir()
	full, err := layercache.Open(kept, kept, 1<<10, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	meet, dir := t.TempDir(), t.TempDir()
	said := newProgress()
	door := (&maker{log: slog.New(slog.DiscardHandler), note: said.change}).cacheDoor("root", meet)
	defer door.close()
	meetCache(t, meet, full)
	b, _, err := pile(t.Context(), pulledImage(t, []string{"a"}, []string{"b"}), dir, nil, door)
	if err != nil {
		t.Fatal(err)
	}
	ownFiles(t, b)
	if got := said.now()["root"].Alone; !strings.Contains(got, "refuses: there is no room for it on this node") {
		t.Errorf("it says %q", got)
	}
}

// ownFiles: no file of the stack is the node's.
func ownFiles(t *testing.T, b backing.Disk) {
	t.Helper()
	for at := &b; at != nil; at = at.Master {
		if info, err := os.Lstat(at.Path); err != nil || !info.Mode().IsRegular() || at.NodeFile != nil {
			t.Errorf("%s is not this machine's own: %v", at.Path, err)
		}
	}
	if b.UsesNodeFiles() {
		t.Error("something of it is the node's")
	}
}

// TestCacheDies: a cache that breaks off in the middle of an image costs the machine nothing but the time until then.
func TestCacheDies(t *testing.T) {
	kept := t.TempDir()
	c, err := layercache.Open(kept, kept, 1<<30, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	meet, said := t.TempDir(), newProgress()
	door := (&maker{log: slog.New(slog.DiscardHandler), note: said.change}).cacheDoor("root", meet)
	defer door.close()
	meetCache(t, meet, c)
	conn := <-door.came
	img, dir := pulledImage(t, []string{"a"}, []string{"b"}, []string{"c"}), t.TempDir()
	first, f, err := sharedLayer(t.Context(), conn, img, 0) // the connection's next layer would be the second
	if err != nil || first.Size == 0 {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	door.came <- conn
	b, _, err := pile(t.Context(), img, dir, nil, door)
	if err != nil {
		t.Fatal(err)
	}
	ownFiles(t, b)
	if said.now()["root"].Alone == "" {
		t.Error("it does not say that its layers are its own")
	}
}

// TestNoAgent: on a node without an agent nobody is waited for, and the machine says why its layers are its own.
func TestNoAgent(t *testing.T) {
	meet, said, begin := t.TempDir(), newProgress(), time.Now()
	k := &maker{machine: launcherapi.Machine{NoAgent: true}, log: slog.New(slog.DiscardHandler), note: said.change}
	door := k.cacheDoor("root", meet)
	defer door.close()
	b, _, err := pile(t.Context(), pulledImage(t, []string{"a"}), t.TempDir(), nil, door)
	if err != nil {
		t.Fatal(err)
	}
	ownFiles(t, b)
	if took := time.Since(begin); took >= cachePatience {
		t.Errorf("it waited for %s", took)
	}
	if got := said.now()["root"].Alone; got != "no agent of Berth runs on its node" {
		t.Errorf("it says %q", got)
	}
	if files, err := os.ReadDir(meet); err != nil || len(files) != 0 {
		t.Errorf("it waits at %v: %v", files, err)
	}
}

// TestWordOfTheAgent: the word that there is no agent comes with the word to go, and is not needed for it.
func TestWordOfTheAgent(t *testing.T) {
	for said, want := range map[string]bool{"": false, "none": true, "none\n": true, "some": false} {
		dir := t.TempDir()
		for name, text := range map[string]string{launcherapi.GoFile: "yes", launcherapi.TaskFile: `{"name": "vm"}`, launcherapi.AgentFile: said} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := await(t.Context(), dir); err != nil || m.Name != "vm" || m.NoAgent != want {
			t.Errorf("%q: %+v, %v", said, m, err)
		}
	}
}
