//go:build host

package sink

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// TestResumeKeepsSize: a disk that an earlier run made as large as all that was free is continued, and is not cut.
func TestResumeKeepsSize(t *testing.T) {
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "point")
	must(t, os.Mkdir(point, 0o700))
	for _, args := range [][]string{{"truncate", "-s", "64M", image}, {"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, point}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { must(t, exec.Command("umount", point).Run()) })
	o := Options{Path: filepath.Join(point, "disk.img"), Size: 64 << 20}
	first := mustOpen(t, o)
	must(t, first.Begin(1<<20, false))
	free, _, err := first.(*file).space()
	must(t, err)
	free &^= zeropage.Size - 1
	if first.Size() >= free {
		t.Fatalf("a disk of %d leaves nothing of %d", first.Size(), free)
	}
	must(t, os.Truncate(first.(*file).beside("part"), free))
	must(t, first.Close())
	again := mustOpen(t, o)
	must(t, again.Begin(1<<20, true))
	if again.Size() != free {
		t.Errorf("the disk had %d bytes and has %d", free, again.Size())
	}
	must(t, again.Close())
}
