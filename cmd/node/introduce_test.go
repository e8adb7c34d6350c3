package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// TestLayerCounts: the agent reads what the cache on its node holds, and does not follow a link that a compromised cache left for it.
func TestLayerCounts(t *testing.T) {
	dir, err := os.MkdirTemp("", "node") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	kept := t.TempDir()
	cache, err := layercache.Open(kept, kept, 1<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cache.TurnAway()
	l, err := listenForCounts(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go cache.TellCounts(l)
	// The agent is root without root's rights, and the cache another user: to connect is to write.
	if info, err := os.Stat(filepath.Join(dir, countsSocket)); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	if got, err := layerCounts(dir); err != nil || got != (layercache.Counts{Bound: 1 << 20, Refused: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, leave := range map[string]func(at string) error{
		"a link": func(at string) error { return os.Symlink(filepath.Join(dir, countsSocket), at) },
		"a file": func(at string) error { return os.WriteFile(at, []byte(`{"layers": 1}`), 0o600) },
		"none":   func(string) error { return nil },
	} {
		other := t.TempDir()
		if err := leave(filepath.Join(other, countsSocket)); err != nil {
			t.Fatal(err)
		}
		if got, err := layerCounts(other); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
