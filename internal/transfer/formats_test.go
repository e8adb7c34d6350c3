package transfer

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// unranged is a blob that can only be read once, in order, like an upload.
type unranged struct{ *flaky }

func (u unranged) Info() source.Info { return source.Info{Name: "upload", Size: -1} }
func (u unranged) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off != 0 || n >= 0 {
		return nil, fmt.Errorf("open a stream at %d for %d bytes", off, n)
	}
	return u.flaky.Open(ctx, off, n)
}

func inMemory(p []byte, version string) *flaky {
	f := &flaky{p: p, version: version}
	f.left.Store(1 << 40)
	return f
}

// TestEveryShape brings one disk in every order, compression and way of reading, with and without a checksum.
func TestEveryShape(t *testing.T) {
	disk := disktest.Text(5<<20+3*512, 8)
	images := map[string][]byte{
		"raw":                       disk,
		"qcow2":                     disktest.QCOW2(t, disk, 1, false, false),
		"qcow2, compressed":         disktest.QCOW2(t, disk, 2, true, false),
		"qcow2, tables late":        disktest.QCOW2(t, disk, 3, false, true),
		"qcow2, compressed, tables": disktest.QCOW2(t, disk, 4, true, true),
	}
	for name, image := range images {
		for wrap, file := range map[string][]byte{"": image, ".gz": disktest.Gzip(t, image), ".zst": disktest.Zstd(t, image)} {
			for _, checked := range []bool{false, true} {
				for _, ranged := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s%s/checked=%v/ranged=%v", name, wrap, checked, ranged), func(t *testing.T) {
						t.Parallel()
						to := filepath.Join(t.TempDir(), "disk.img")
						k := fromURL("http://not.used", to)
						k.Target.Size = 8 << 20
						if checked {
							k.Checksum = sumOf(file)
						}
						var blob source.Blob = inMemory(file, "v1")
						if !ranged {
							blob = unranged{inMemory(file, "")}
						}
						r := New(k).RunFrom(t.Context(), blob)
						if r.Outcome != task.Done || r.Virtual != 8<<20 || r.Digest != k.Checksum {
							t.Fatalf("report %+v", r)
						}
						wantDisk(t, to, disk, 8<<20)
					})
				}
			}
		}
	}
}

// TestBreakAnywhere breaks off at many places, and breaks off the next run as well, until one comes to its end.
func TestBreakAnywhere(t *testing.T) {
	disk := disktest.Text(16<<20, 9)
	plain := disktest.QCOW2(t, disk, 5, false, true)
	for name, file := range map[string][]byte{
		"raw":        disk,
		"qcow2":      plain,
		"compressed": disktest.QCOW2(t, disk, 6, true, true),
		"raw.gz":     disktest.Gzip(t, disk),
		"qcow2.gz":   disktest.Gzip(t, plain),
		"qcow2.zst":  disktest.Zstd(t, plain),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL("http://not.used", to)
			k.Checksum = sumOf(file)
			resumed := int64(0)
			for tries := 1; ; tries++ {
				blob := &flaky{p: file, version: "v1"}
				blob.left.Store(int64(len(file)/5 + tries*len(file)/40))
				work := New(k)
				work.Every, work.every = 50*time.Millisecond, 1<<20
				r := work.RunFrom(t.Context(), blob)
				resumed = max(resumed, r.Resumed)
				if r.Outcome == task.Done {
					break
				}
				if r.Reason != task.SourceUnreachable || tries == 60 {
					t.Fatalf("run %d: %+v", tries, r)
				}
			}
			// One frame has no place to continue from, and the compressed image is hardly more than one unit.
			if resumed == 0 && name != "qcow2.zst" && name != "compressed" {
				t.Errorf("no run went on where another left off")
			}
			wantDisk(t, to, disk, len(disk))
		})
	}
}
