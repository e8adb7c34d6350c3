package transfer

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
)

// FuzzUnpack unpacks anything: nothing may be made outside of the target, and a directory that is not whole is marked.
func FuzzUnpack(f *testing.F) {
	f.Add(disktest.Tarball(f, disktest.Entry(tar.TypeDir, "d/", ""), disktest.Entry(tar.TypeReg, "d/file", "text"), disktest.Entry(tar.TypeLink, "hard", "d/file")))
	f.Add(disktest.Tarball(f, disktest.Entry(tar.TypeSymlink, "l", ".."), disktest.Entry(tar.TypeReg, "l/escape", "text")))
	f.Add(disktest.Tarball(f, disktest.Entry(tar.TypeReg, "../escape", "text")))
	f.Add(disktest.Tarball(f, disktest.Entry(tar.TypeReg, "a", "1"), disktest.Entry(tar.TypeReg, "a/b", "2"), disktest.Entry(tar.TypeDir, "a", "")))
	f.Add(disktest.Gzip(f, disktest.Tarball(f, disktest.Entry(tar.TypeSymlink, "x", "x"), disktest.Entry(tar.TypeReg, "x/y", "loop"))))
	f.Fuzz(func(t *testing.T, p []byte) {
		outside := t.TempDir()
		to := filepath.Join(outside, "volume")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		k := fromURL("http://not.used", to)
		k.Target.Content = task.Archive
		r := New(k).RunFrom(t.Context(), unranged{inMemory(p, "")})
		_, err := os.Lstat(filepath.Join(to, ".berth-unpacking"))
		if marked := err == nil; marked == (r.Outcome == task.Done) {
			t.Errorf("marked as incomplete: %v, report %+v", marked, r)
		}
		if names, _ := os.ReadDir(outside); len(names) != 1 {
			t.Errorf("made outside of the target: %v", names)
		}
	})
}

// FuzzDisk brings anything: it never panics, and what fails leaves nothing that looks finished.
func FuzzDisk(f *testing.F) {
	disk := disktest.Text(200_000, 1)
	for _, late := range []bool{false, true} {
		f.Add(disktest.QCOW2(f, disk, 1, false, late)[:300_000], true)
		f.Add(disktest.Gzip(f, disktest.QCOW2(f, disk, 2, true, late)), false)
	}
	f.Add(disk, true)
	f.Fuzz(func(t *testing.T, p []byte, ranged bool) {
		to := filepath.Join(t.TempDir(), "disk.img")
		k := fromURL("http://not.used", to)
		k.Target.Size = 64 << 20
		work := New(k)
		var r task.Report
		if ranged {
			r = work.RunFrom(t.Context(), inMemory(p, ""))
		} else {
			r = work.RunFrom(t.Context(), unranged{inMemory(p, "")})
		}
		info, err := os.Stat(to)
		if done := r.Outcome == task.Done; done != (err == nil) || done && info.Size() != 64<<20 {
			t.Errorf("report %+v, disk %v, %v", r, info, err)
		}
		if names := leftovers(t, to); r.Outcome != task.Retry && len(names) != 0 {
			t.Errorf("report %+v left %v", r, names)
		}
	})
}
