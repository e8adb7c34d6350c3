//go:build host

package diskspace

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// TestEmptyDiskFits: a guest can write every page of a disk that is made on a claim's own filesystem, in any order; on a shared one
// it has the size that was asked for.
func TestEmptyDiskFits(t *testing.T) {
	ext4, xfs := []string{"mkfs.ext4", "-q", "-F", "-m", "0"}, []string{"mkfs.xfs", "-q", "-f"}
	for _, c := range []struct {
		mib  int64
		mkfs []string
	}{{16, ext4}, {64, ext4}, {100, ext4}, {320, xfs}} {
		t.Run(fmt.Sprint(c.mkfs[0], c.mib), func(t *testing.T) {
			dir := t.TempDir()
			image, point := filepath.Join(dir, "image"), filepath.Join(dir, "point")
			run(t, "truncate", "-s", fmt.Sprint(c.mib<<20), image)
			run(t, append(c.mkfs, image)...)
			run(t, "mkdir", point)
			run(t, "mount", "-o", "loop", image, point)
			defer run(t, "umount", point)
			asked := c.mib << 20 * 98 / 100 >> 20 << 20
			if got := makeDisk(t, filepath.Join(dir, "disk.img"), asked); got != asked {
				t.Errorf("on a filesystem that others share a disk of %d has %d", asked, got)
			}
			disk := filepath.Join(point, "disk.img")
			got := makeDisk(t, disk, asked)
			if got > asked || got < asked*2/3 {
				t.Errorf("a disk of %d was asked for, it has %d", asked, got)
			}
			writeShuffled(t, disk, got/page)
		})
	}
}

func makeDisk(t *testing.T, path string, asked int64) int64 {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Size(f, asked); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// writeShuffled writes every page by itself, in no order, as a guest's database does: the filesystem has to write down the most.
func writeShuffled(t *testing.T, path string, pages int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as direct writes must be
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	data[0] = 1
	for i, n := range rand.New(rand.NewPCG(1, 1)).Perm(int(pages)) {
		if _, err := f.WriteAt(data, int64(n)*page); err != nil {
			t.Fatalf("after %d of %d pages: %v", i, pages, err)
		}
	}
}
