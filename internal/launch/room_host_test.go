//go:build host

package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEmptyDiskFits: a disk that is made on a claim's own filesystem fits on it; on a shared one it has the size that was asked for.
func TestEmptyDiskFits(t *testing.T) {
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	for _, mib := range []int64{16, 64, 100, 1024, 3000} {
		t.Run(fmt.Sprint(mib), func(t *testing.T) {
			dir := t.TempDir()
			image, point := filepath.Join(dir, "image"), filepath.Join(dir, "point")
			run("truncate", "-s", fmt.Sprint(mib<<20), image)
			run("mkfs.ext4", "-q", "-F", "-m", "0", image)
			run("mkdir", point)
			run("mount", "-o", "loop", image, point)
			defer run("umount", point)
			asked := mib << 20 * 94 / 100 >> 20 << 20
			for where, most := range map[string]int64{point: asked, dir: asked} {
				f, err := os.Create(filepath.Join(where, "disk.img"))
				if err != nil {
					t.Fatal(err)
				}
				if err := Size(f, asked); err != nil {
					t.Fatal(err)
				}
				info, err := f.Stat()
				if err != nil || info.Size() > most || where == dir && info.Size() != asked || info.Size() < asked*2/3 {
					t.Errorf("a disk of %d was asked for, it has %d, %v", asked, info.Size(), err)
				}
				if where == point {
					run("dd", "if=/dev/zero", "of="+f.Name(), "bs=1M", fmt.Sprint("count=", info.Size()>>20), "conv=notrunc")
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
