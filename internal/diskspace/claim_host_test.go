//go:build host

package diskspace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/diskspace"
	"github.com/berth-vm/berth/pkg/claim"
)

const mib = 1 << 20

// making are the ways to make a filesystem: as the kubelet's mounter and most drivers do, and as our own driver does.
var making = map[string]struct {
	kind claim.Filesystem
	args []string
}{
	"ext4":      {claim.Ext4, []string{"mkfs.ext4", "-q", "-F", "-m", "0"}},
	"localdisk": {claim.Ext4, []string{"mkfs.ext4", "-F", "-q", "-b", "4096", "-i", "65536", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"}},
	"xfs":       {claim.XFS, []string{"mkfs.xfs", "-q", "-f"}},
}

// free makes a filesystem of a size, mounts it, and returns how much a program can write to it.
func free(t *testing.T, args []string, size int64) int64 {
	t.Helper()
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "point")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{append(append([]string{}, args...), image), {"mount", "-o", "loop", image, point}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", command, err, out)
		}
	}
	var s unix.Statfs_t
	err := unix.Statfs(point, &s)
	if out, uerr := exec.Command("umount", point).CombinedOutput(); err != nil || uerr != nil {
		t.Fatalf("%v, %v: %s", err, uerr, out)
	}
	return int64(s.Bavail) * s.Bsize
}

// TestFilesystemsKeepNoMore: what is asked for fits on a real filesystem of the claim that is made for it, also if it is written
// in no order, at every place where mkfs changes its mind and between them; also when the driver rounds the claim up to the next GiB.
func TestFilesystemsKeepNoMore(t *testing.T) {
	sizes := []int64{16, 17, 31, 32, 33, 40, 63, 64, 65, 90, 100, 127, 128, 129, 200, 255, 256, 257, 300, 301, 400, 511, 512, 513, 600,
		767, 800, 960, 1000, 1023, 1024, 1025, 1300, 1536, 1900, 2047, 2048, 2049, 3000, 4095, 4096, 5000, 8192, 16384}
	for name, m := range making {
		t.Run(name, func(t *testing.T) {
			for _, disk := range sizes {
				size, err := m.kind.Inflate(disk*mib, claim.DefaultOverhead)
				if err != nil {
					t.Fatal(err)
				}
				rounded := (size + 1<<30 - 1) >> 30 << 30
				for _, size := range []int64{size, rounded} {
					if got := free(t, m.args, size); diskspace.Fit(disk*mib, got) < disk*mib {
						t.Errorf("a disk of %d MiB does not fit in a claim of %d MiB: %d bytes are free", disk, size/mib, got)
					}
				}
				if m.kind == claim.XFS && disk < 300 || disk >= 2<<10 {
					continue // no xfs is that small; and of large ones only the configured overhead is known
				}
				if got, want := free(t, m.args, disk*mib), m.kind.Holds(disk*mib); diskspace.Fit(want, got) < want {
					t.Errorf("a volume of %d MiB has %d bytes free, not the %d that are sure", disk, got, want)
				}
			}
		})
	}
}
