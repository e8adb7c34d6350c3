package backing

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFirstDisk: the disk has its size when it has its name, and half of one that a crash left is no obstacle.
func TestFirstDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := CreateDisk(path, 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != 3<<20 || b.Path != path || b.Format != "raw" || b.Device {
		t.Errorf("made %+v, %v, %v", b, info, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
