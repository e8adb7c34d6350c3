package sink

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

func random(n int, seed uint64) []byte {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range p {
		p[i] = byte(rng.Uint32() | 1)
	}
	return p
}

func mustOpen(t *testing.T, o Options) Target {
	t.Helper()
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, d Target, p []byte, off int64) {
	t.Helper()
	if n, err := d.WriteAt(p, off); err != nil || n != len(p) {
		t.Fatalf("write %d bytes at %d: %d, %v", len(p), off, n, err)
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(path, &st))
	return st.Blocks * 512
}

func TestFileIsSparseAndGrown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	d := mustOpen(t, Options{Path: path, Size: 64 << 20})
	must(t, d.Begin(40<<20, false))
	want := make([]byte, 64<<20)
	copy(want[1<<20:], random(300_001, 1))       // neither end on a page
	copy(want[30<<20+512:], random(100_000, 2))  // begins inside a page
	for off := 0; off < 40<<20; off += 777_777 { // in pieces that know no pages either
		write(t, d, want[off:min(off+777_777, 40<<20)], int64(off))
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("an unfinished disk has the name of a finished one")
	}
	must(t, d.Finish())
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatal("the disk is not what was written")
	}
	if used := blocks(t, path); used > 1<<20 {
		t.Errorf("%d bytes allocated for 400,001 bytes of data", used)
	}
	if d.Written() > 500_000 {
		t.Errorf("%d bytes written for 400,001 bytes of data", d.Written())
	}
}

func TestFilePreallocated(t *testing.T) {
	for name, begin := range map[string]int64{"size known": 2 << 20, "size told later": -1} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk.img")
			d := mustOpen(t, Options{Path: path, Size: 8 << 20, Preallocate: true})
			must(t, d.Begin(begin, false))
			want := random(100_000, 3)
			write(t, d, want, 5000)
			must(t, d.Resize(2<<20))
			must(t, d.Finish())
			if used := blocks(t, path); used < 8<<20 {
				t.Errorf("%d bytes allocated of %d", used, 8<<20)
			}
			got, err := os.ReadFile(path)
			must(t, err)
			if len(got) != 8<<20 || !bytes.Equal(got[5000:105_000], want) || !zeropage.IsZero(got[105_000:]) {
				t.Error("the disk is not what was written")
			}
		})
	}
}

func TestFileZeroesWrittenWhereNothingCanBeReserved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	d := mustOpen(t, Options{Path: path}).(*file)
	must(t, d.Begin(3<<20, false))
	write(t, d, random(5000, 4), 1<<20)
	must(t, d.fill())
	must(t, d.Finish())
	if used := blocks(t, path); used < 3<<20 {
		t.Errorf("%d bytes allocated of %d", used, 3<<20)
	}
}

func TestFileRefusesToWriteOutside(t *testing.T) {
	d := mustOpen(t, Options{Path: filepath.Join(t.TempDir(), "disk.img")})
	must(t, d.Begin(1<<20, false))
	for _, off := range []int64{-1, 1<<20 - 9, 1 << 62} {
		var e *task.Error
		if _, err := d.WriteAt(random(10, 1), off); !errors.As(err, &e) || e.Reason != task.BadImage {
			t.Errorf("at %d: %v", off, err)
		}
	}
}

func TestFileNeverFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	for _, name := range []string{"disk.img", ".disk.img.berth-part", ".disk.img.berth-parked", ".disk.img.berth-note-new"} {
		must(t, os.Symlink(victim, filepath.Join(dir, name)))
	}
	d := mustOpen(t, Options{Path: filepath.Join(dir, "disk.img")})
	must(t, d.Begin(1<<20, false))
	write(t, d, random(100_000, 1), 0)
	_, err := d.Park(random(100, 2))
	must(t, err)
	must(t, d.Save([]byte("note")))
	must(t, d.Finish())
	if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
		t.Errorf("a file outside of the volume is now %q, %v", b, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "disk.img")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the disk is %v, %v", info.Mode(), err)
	}
}

func TestFileNotes(t *testing.T) {
	dir := t.TempDir()
	o := Options{Path: filepath.Join(dir, "disk.img")}
	d := mustOpen(t, o)
	if n, err := d.Note(); n != nil || err != nil {
		t.Fatalf("a note in an empty directory: %q, %v", n, err)
	}
	must(t, d.Begin(1<<20, false))
	must(t, d.Save([]byte("first")))
	must(t, d.Save([]byte("second")))
	if n, err := mustOpen(t, o).Note(); string(n) != "second" || err != nil {
		t.Fatalf("note %q, %v", n, err)
	}
	name := filepath.Join(dir, ".disk.img.berth-note")
	whole, err := os.ReadFile(name)
	must(t, err)
	for cut := range whole { // torn at every byte
		must(t, os.WriteFile(name, whole[:cut], 0o600))
		if n, err := d.Note(); n != nil || err != nil {
			t.Fatalf("cut at %d: %q, %v", cut, n, err)
		}
		bad := bytes.Clone(whole)
		bad[cut] ^= 0x40
		must(t, os.WriteFile(name, bad, 0o600))
		if n, err := d.Note(); n != nil || err != nil {
			t.Fatalf("damaged at %d: %q, %v", cut, n, err)
		}
	}
}

// TestFileCrashes goes through what a crash between any two steps of Finish leaves.
func TestFileCrashes(t *testing.T) {
	dir := t.TempDir()
	o := Options{Path: filepath.Join(dir, "disk.img")}
	d := mustOpen(t, o)
	must(t, d.Begin(1<<20, false))
	want := random(1<<20, 5)
	write(t, d, want[:5000], 0)
	_, err := d.Park(random(1000, 1))
	must(t, err)
	must(t, d.Sync())
	must(t, d.Save([]byte("half")))

	again := mustOpen(t, o) // before Finish
	if n, err := again.Note(); string(n) != "half" || err != nil {
		t.Fatalf("note %q, %v", n, err)
	}
	must(t, again.Unpark(500))
	if err := again.Unpark(501); err == nil {
		t.Fatal("bytes that were never parked are said to be")
	}
	must(t, again.Begin(1<<20, true))
	write(t, again, want[5000:], 5000)
	must(t, os.Rename(filepath.Join(dir, ".disk.img.berth-part"), o.Path)) // inside Finish, after giving the name

	last := mustOpen(t, o)
	if n, err := last.Note(); string(n) != "half" || err != nil {
		t.Fatalf("note %q, %v", n, err)
	}
	if err := last.Begin(1<<20, true); !errors.Is(err, ErrFinished) {
		t.Fatalf("resume a finished disk: %v", err)
	}
	got, err := os.ReadFile(o.Path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("the disk is not what was written")
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left beside the disk: %v", names)
	}
}

func TestOpenRefusesOddTargets(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"directory": dir, "no directory": filepath.Join(dir, "a", "b"), "character device": "/dev/null"} {
		if _, err := Open(Options{Path: path}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestResumeOfALarger: an earlier run was asked for a larger disk, of which only the image has bytes. What is asked for now counts.
func TestResumeOfALarger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	must(t, mustOpen(t, Options{Path: path, Size: 3 << 20}).Begin(1<<20, false))
	d := mustOpen(t, Options{Path: path, Size: 2 << 20})
	must(t, d.Begin(1<<20, true))
	must(t, d.Finish())
	if info, err := os.Stat(path); err != nil || info.Size() != 2<<20 || d.Size() != info.Size() {
		t.Errorf("the disk has %d bytes: %+v, %v", d.Size(), info, err)
	}
}
