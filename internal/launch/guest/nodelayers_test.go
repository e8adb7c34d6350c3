package guest

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-vm/berth/internal/launch/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// meetCache introduces whoever waits in dir to the cache, as the node's agent does.
func meetCache(t *testing.T, dir string, c *layercache.Cache) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, rendezvous.LayersSocket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	side := t.TempDir()
	l, err := rendezvous.Serve(side, func(c2 *net.UnixConn) bool {
		go func() { _ = c.Serve(t.Context(), c2, layercache.DefaultPace) }()
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
		door := openCacheDoor(meet, slog.New(slog.DiscardHandler))
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
			if err != nil || there.Held == nil {
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
	door := openCacheDoor(meet, slog.New(slog.DiscardHandler))
	defer door.close()
	meetCache(t, meet, full)
	b, _, err := pile(t.Context(), pulledImage(t, []string{"a"}, []string{"b"}), dir, nil, door)
	if err != nil {
		t.Fatal(err)
	}
	for at := &b; at != nil; at = at.Master {
		if info, err := os.Lstat(at.Path); err != nil || !info.Mode().IsRegular() || at.Held != nil {
			t.Errorf("%s is not this machine's own: %v", at.Path, err)
		}
	}
}
