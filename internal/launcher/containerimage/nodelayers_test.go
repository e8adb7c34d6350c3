package containerimage

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/imagetest"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// TestNodeLayers: a stack of the node's layers is the one that a machine makes for itself, and one machine's layers are the next one's.
func TestNodeLayers(t *testing.T) {
	kept := t.TempDir()
	c, err := layercache.Open(kept, kept, 1<<30, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	img := imagetest.Pulled(t, []string{"a"}, []string{".wh..wh..opq", "b"}, []string{"c"})
	own, from, err := Stack(t.Context(), img, t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first []uint64
	for range 2 {
		meet, dir := t.TempDir(), t.TempDir()
		door := (&Maker{Log: slog.New(slog.DiscardHandler)}).CacheDoor("root", meet)
		imagetest.MeetCache(t, meet, c)
		b, counts, err := Stack(t.Context(), img, dir, nil, door)
		door.Close()
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
	said := progress.New()
	door := (&Maker{Log: slog.New(slog.DiscardHandler), Note: said.Change}).CacheDoor("root", meet)
	defer door.Close()
	imagetest.MeetCache(t, meet, full)
	b, _, err := Stack(t.Context(), imagetest.Pulled(t, []string{"a"}, []string{"b"}), dir, nil, door)
	if err != nil {
		t.Fatal(err)
	}
	imagetest.OwnFiles(t, b)
	if got := said.Now()["root"].Alone; !strings.Contains(got, "refuses: there is no room for it on this node") {
		t.Errorf("it says %q", got)
	}
}

// TestCacheDies: a cache that breaks off in the middle of an image costs the machine nothing but the time until then.
func TestCacheDies(t *testing.T) {
	kept := t.TempDir()
	c, err := layercache.Open(kept, kept, 1<<30, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	meet, said := t.TempDir(), progress.New()
	door := (&Maker{Log: slog.New(slog.DiscardHandler), Note: said.Change}).CacheDoor("root", meet)
	defer door.Close()
	imagetest.MeetCache(t, meet, c)
	conn := <-door.came
	img, dir := imagetest.Pulled(t, []string{"a"}, []string{"b"}, []string{"c"}), t.TempDir()
	first, f, err := sharedLayer(t.Context(), conn, img, 0) // the connection's next layer would be the second
	if err != nil || first.Size == 0 {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	door.came <- conn
	b, _, err := Stack(t.Context(), img, dir, nil, door)
	if err != nil {
		t.Fatal(err)
	}
	imagetest.OwnFiles(t, b)
	if said.Now()["root"].Alone == "" {
		t.Error("it does not say that its layers are its own")
	}
}

// TestNoAgent: on a node without an agent the launcher does not wait, and the machine says why it has its own layers.
func TestNoAgent(t *testing.T) {
	meet, said, begin := t.TempDir(), progress.New(), time.Now()
	k := &Maker{Machine: launcherapi.Machine{NoAgent: true}, Log: slog.New(slog.DiscardHandler), Note: said.Change}
	door := k.CacheDoor("root", meet)
	defer door.Close()
	b, _, err := Stack(t.Context(), imagetest.Pulled(t, []string{"a"}), t.TempDir(), nil, door)
	if err != nil {
		t.Fatal(err)
	}
	imagetest.OwnFiles(t, b)
	if took := time.Since(begin); took >= cachePatience {
		t.Errorf("it waited for %s", took)
	}
	if got := said.Now()["root"].Alone; got != "no agent of Berth runs on its node" {
		t.Errorf("it says %q", got)
	}
	if files, err := os.ReadDir(meet); err != nil || len(files) != 0 {
		t.Errorf("it waits at %v: %v", files, err)
	}
}
