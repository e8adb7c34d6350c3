package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
)

// must fails a test that could not prepare what it needs.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// someVolume returns a filesystem with some of everything on it, and a disk if one is wanted.
func someVolume(t testing.TB, disk []byte) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"d/deep/er", "empty", "locked", "lost+found"} {
		must(t, os.MkdirAll(at(d), 0o755))
	}
	for name, content := range map[string][]byte{"a": []byte("one"), "d/b": disktest.Noise(3<<20, 5), "d/deep/er/c": nil, "odd \xff\n name": []byte("x"),
		"locked/file": []byte("y"), "lost+found/z": []byte("not content"), ".berth-unpacking": nil} {
		must(t, os.WriteFile(at(name), content, 0o640))
	}
	sparse, err := os.Create(at("d/sparse"))
	must(t, err)
	_, err = sparse.WriteAt([]byte("end"), 300<<20)
	must(t, err)
	must(t, sparse.Close())
	must(t, os.Link(at("d/b"), at("same")))
	must(t, os.Symlink("/etc/passwd", at("link")))
	must(t, os.Symlink("nowhere", at("d/dangling")))
	must(t, unix.Mkfifo(at("pipe"), 0o620))
	must(t, os.Chmod(at("a"), 0o4751))
	old := time.Unix(1_000_000_000, 123_000)
	must(t, os.Chtimes(at("a"), old, old))
	if err := unix.Setxattr(at("a"), "user.colour", []byte("blue"), 0); err != nil {
		t.Logf("no extended attributes here: %v", err)
	}
	if disk != nil {
		must(t, os.WriteFile(at("disk.img"), disk, 0o660))
	}
	must(t, os.Chtimes(at("d/deep"), old, old))
	must(t, os.Chmod(at("locked"), 0o500))
	t.Cleanup(func() { _ = os.Chmod(at("locked"), 0o700) })
	return dir
}

// listing says everything about the files of a volume that a clone has too.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	all, inodes := map[string]string{}, map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		name := strings.TrimPrefix(path, dir+"/")
		if path == dir || strings.HasPrefix(name, "lost+found") || name == ".berth-unpacking" {
			return nil
		}
		info, err := os.Lstat(path)
		must(t, err)
		st := info.Sys().(*syscall.Stat_t)
		said := fmt.Sprintf("%v %d:%d", info.Mode(), st.Uid, st.Gid)
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			must(t, err)
			sum := sha256.Sum256(b)
			value := make([]byte, 100)
			n, _ := unix.Lgetxattr(path, "user.colour", value)
			said += fmt.Sprintf(" %d %s %q", len(b), hex.EncodeToString(sum[:4]), value[:max(n, 0)])
			if name != "disk.img" {
				said += info.ModTime().String()
			}
			if first := inodes[st.Ino]; first != "" {
				said += " = " + first
			}
			inodes[st.Ino] = name
		}
		if info.IsDir() {
			said += info.ModTime().String()
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			must(t, err)
			said += to
		}
		all[name] = said
		return nil
	}))
	return all
}

// clonesOf returns the two ways in which a worker reads a volume.
func clonesOf(t testing.TB, dir string) map[string]task.Source {
	tls := tlsDir(t.(*testing.T))
	return map[string]task.Source{
		"copied":   {Local: &task.Local{Path: filepath.Join(dir, "disk.img"), Raw: true}},
		"streamed": {Peer: &task.Peer{URL: serve(t.(*testing.T), dir, task.Volume, tls), TLSDir: tls}},
	}
}

func cloneTask(s task.Source, to string) task.Task {
	return task.Task{Version: task.Version, Claim: "claim-1", Source: s, Target: task.Target{Path: to, Content: task.Volume}}
}

// TestCloneHasWhatItsSourceHas: a volume is cloned with everything on it, with a disk and without, on one node and between two, also where an
// earlier try has left something else.
func TestCloneHasWhatItsSourceHas(t *testing.T) {
	for name, disk := range map[string][]byte{"with a disk": append(disktest.Noise(3<<20, 1), make([]byte, 2<<20+1000)...), "without": nil} {
		from := someVolume(t, disk)
		want := listing(t, from)
		for way, src := range clonesOf(t, from) {
			t.Run(name+" "+way, func(t *testing.T) {
				to := t.TempDir()
				must(t, os.MkdirAll(filepath.Join(to, "left/over"), 0o755))
				must(t, os.WriteFile(filepath.Join(to, "a"), []byte("of before"), 0o600))
				must(t, os.WriteFile(filepath.Join(to, "disk.img"), []byte("of before"), 0o600))
				must(t, os.Chmod(filepath.Join(to, "left/over"), 0))
				r := New(cloneTask(src, to)).Run(t.Context())
				t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "locked"), 0o700) })
				if r.Outcome != task.Done || r.Virtual != int64(len(disk)) {
					t.Fatalf("report %+v", r)
				}
				if diff := cmp.Diff(want, listing(t, to)); diff != "" {
					t.Error(diff)
				}
				var st unix.Stat_t
				must(t, unix.Stat(filepath.Join(to, "d/sparse"), &st))
				if st.Blocks*512 > 1<<20 {
					t.Errorf("holes were filled: %d bytes", st.Blocks*512)
				}
				if left, err := filepath.Glob(filepath.Join(to, ".*berth*")); err != nil || left != nil {
					t.Errorf("left behind: %q, %v", left, err)
				}
			})
		}
	}
}

// TestCloneIsBegunAgain: a clone that was interrupted among the files, and then in the disk, has everything in the end; a disk
// that was begun is continued.
func TestCloneIsBegunAgain(t *testing.T) {
	disk := disktest.Noise(24<<20, 2)
	from := someVolume(t, disk)
	want := listing(t, from)
	to := t.TempDir()
	k := cloneTask(clonesOf(t, from)["streamed"], to)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := New(k).Run(ctx); r.Reason != task.Interrupted {
		t.Fatalf("report %+v", r)
	}
	if r := New(k).Run(t.Context()); r.Outcome != task.Done {
		t.Fatalf("report %+v", r)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "locked"), 0o700) })
	if diff := cmp.Diff(want, listing(t, to)); diff != "" {
		t.Error(diff)
	}
}

// TestOnlyADiskGoesOnADevice: a volume without a disk cannot be cloned to a device, and is not tried again.
func TestOnlyADiskGoesOnADevice(t *testing.T) {
	from := someVolume(t, nil)
	for way, src := range clonesOf(t, from) {
		k := cloneTask(src, filepath.Join(t.TempDir(), "device"))
		k.Target.Content = task.Disk
		if r := New(k).Run(t.Context()); r.Reason != task.BadImage || !strings.Contains(r.Detail, "can only be cloned to a filesystem") {
			t.Errorf("%s: %+v", way, r)
		}
	}
}

// TestHostileVolume: what a tenant makes of their volume leads nowhere outside of the clone.
func TestHostileVolume(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "target"), []byte("untouched"), 0o600))
	from := t.TempDir()
	must(t, os.Symlink(filepath.Join(outside, "target"), filepath.Join(from, "disk.img")))
	must(t, os.Symlink(outside, filepath.Join(from, "dir")))
	for way, src := range clonesOf(t, from) {
		to := t.TempDir()
		// where the source has a link, an earlier try left a directory, and the other way round
		must(t, os.Mkdir(filepath.Join(to, "dir"), 0o755))
		must(t, os.Symlink(outside, filepath.Join(to, "other")))
		if r := New(cloneTask(src, to)).Run(t.Context()); r.Outcome != task.Done {
			t.Fatalf("%s: %+v", way, r)
		}
		if diff := cmp.Diff(listing(t, from), listing(t, to)); diff != "" {
			t.Errorf("%s: %s", way, diff)
		}
	}
	if b, err := os.ReadFile(filepath.Join(outside, "target")); err != nil || !bytes.Equal(b, []byte("untouched")) {
		t.Errorf("a file outside: %q, %v", b, err)
	}
}
