//go:build host

package layerdisk_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/transfer/erofs"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
)

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

type file struct {
	name, text, link string
	kind             byte
	mode             int64
	owner            int
	xattr            map[string]string
	major, minor     int64
	time             int64 // 0: by its place
}

func dir(name string, mode int64, owner int) file {
	return file{name: name, kind: tar.TypeDir, mode: mode, owner: owner}
}
func plain(name, text string) file {
	return file{name: name, text: text, kind: tar.TypeReg, mode: 0o644}
}
func symlink(name, to string) file {
	return file{name: name, link: to, kind: tar.TypeSymlink, mode: 0o777}
}
func hardlink(name, to string) file { return file{name: name, link: to, kind: tar.TypeLink} }
func gone(name string) file {
	return plain(filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name)), "")
}
func opaque(name string) file           { return plain(name+"/.wh..wh..opq", "") }
func owned(f file, m int64, o int) file { f.mode, f.owner = m, o; return f }

func archive(t *testing.T, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), Linkname: f.link,
			ModTime: time.Unix(cmp.Or(f.time, 1_700_000_000+int64(i)), 0), Devmajor: f.major, Devminor: f.minor, Format: tar.FormatPAX}
		for k, v := range f.xattr {
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords["SCHILY.xattr."+k] = v
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tenLayers has every kind of file and every way to take one away.
func tenLayers() [][]file {
	long := strings.Repeat("n", 255)
	deep := strings.Repeat("directory/", 30)
	var many []file
	for i := range 700 { // a directory of several blocks
		many = append(many, plain(fmt.Sprintf("many/file-with-a-name-of-some-length-%04d", i), fmt.Sprint(i)))
	}
	return [][]file{
		append([]file{dir("./", 0o755, 0), dir("etc", 0o755, 0), dir("usr", 0o755, 0), dir("usr/lib", 0o755, 0), symlink("lib", "usr/lib"),
			dir("opaque", 0o700, 7), plain("opaque/a", "a"), dir("opaque/sub", 0o755, 0), plain("opaque/sub/b", "b"),
			dir("gone", 0o755, 0), plain("gone/x", "x"), plain("etc/gone", "1"), plain("etc/stays", "1"), plain("etc/changed", "1"),
			dir("became-file", 0o755, 0), plain("became-file/x", "x"), plain("became-dir", "x"), dir("again", 0o755, 0), plain("again/old", "x"),
			dir("private", 0o2770, 1234), plain("private/secret", "s"), dir("tmp", 0o1777, 0), plain("!first", "before the dots"), dir("empty", 0o711, 3)}, many...),
		{owned(plain("usr/bin/su", "suid"), 0o4755, 0), {name: "usr/bin/ping", text: "p", kind: tar.TypeReg, mode: 0o755,
			xattr: map[string]string{"security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "user.note": "hello"}},
			plain("usr/share/one", "linked"), hardlink("usr/share/two", "usr/share/one"), hardlink("three", "usr/share/one"), plain(long, "long"),
			plain(deep+"file", "deep"), {name: "dev/null", kind: tar.TypeChar, mode: 0o666, major: 1, minor: 3},
			{name: "dev/disk", kind: tar.TypeBlock, mode: 0o660, major: 259, minor: 300}, {name: "run/pipe", kind: tar.TypeFifo, mode: 0o600}},
		{gone("etc/gone"), plain("etc/changed", "3"), gone("gone"), plain("lib/through-the-link", "in usr/lib")},
		{dir("opaque", 0o750, 8), opaque("opaque"), plain("opaque/c", "c"), plain("opaque/sub/d", "d")},
		{gone("became-file"), plain("became-file", "a file now"), dir("became-dir", 0o755, 0), plain("became-dir/x", "x")},
		{dir("again", 0o700, 5), plain("again/new", "new"), gone("again"), plain("private/more", "the directory keeps its owner")},
		{gone("opaque/sub"), gone("nowhere/to/be/found"), plain("fresh/file", "f"), gone("fresh/nothing"), plain("another", "x")},
		{symlink("long-link", strings.Repeat("../", 100)+"etc/stays"), plain("big", strings.Repeat("0123456789abcdef", 1<<17)), plain("many/.wh.file-with-a-name-of-some-length-0005", ""),
			hardlink("many/link", "big")},
		{gone("usr/lib/through-the-link"), {name: "a-file-with-attributes", kind: tar.TypeReg, mode: 0o600, text: "x", xattr: map[string]string{
			"user.large": strings.Repeat("v", 3900), "trusted.overlay.redirect": "/etc"}}},
		{dir("gone", 0o755, 0), plain("gone/back", "again"), plain("etc/gone", "10"), opaque("empty"), dir("sockets/x/y/z", 0o700, 1),
			hardlink("usr/sbin/su", "usr/bin/su"), hardlink("private/ping", "usr/bin/ping"), hardlink("null", "dev/null"), hardlink("lib/link", "long-link")},
	}
}

// apply does to a directory what a layer says, by rm and tar.
func apply(t *testing.T, root string, files []file, packed []byte) {
	t.Helper()
	for _, f := range files {
		in, base := filepath.Split(filepath.Join(root, f.name))
		switch {
		case base == ".wh..wh..opq":
			below, _ := os.ReadDir(in)
			for _, b := range below {
				command(t, "rm", "-rf", filepath.Join(in, b.Name()))
			}
		case strings.HasPrefix(base, ".wh."):
			command(t, "rm", "-rf", filepath.Join(in, strings.TrimPrefix(base, ".wh.")))
		}
	}
	cmd := exec.Command("tar", "--extract", "--directory", root, "--xattrs", "--xattrs-include=*", "--same-owner", "--same-permissions",
		"--numeric-owner", "--exclude=.wh.*")
	cmd.Stdin = bytes.NewReader(packed)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
}

// describe is everything there is to know about each file of a tree.
func describe(t *testing.T, root string) map[string]string {
	t.Helper()
	out, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func list(root string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == filepath.Join(root, "proc") { // is the kernel's where a program runs
			return fs.SkipDir
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		text := fmt.Sprintf("mode=%o owner=%d:%d", s.Mode, s.Uid, s.Gid)
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFDIR: // its time is when something was last put into it
		case unix.S_IFREG:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" size=%d links=%d time=%d sum=%x", s.Size, s.Nlink, s.Mtim.Sec, sha256.Sum256(content))
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " to=" + to
		default:
			text += fmt.Sprintf(" device=%d,%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
		}
		name, err := filepath.Rel(root, path)
		out[name] = text + xattrs(path)
		return err
	})
	return out, err
}

func xattrs(path string) string {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if err != nil || n == 0 {
		return ""
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	text := ""
	for _, name := range names {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if strings.HasPrefix(name, "trusted.overlay.") {
			continue
		}
		text += fmt.Sprintf(" %s=%x (%v)", name, sha256.Sum256(value[:max(0, n)]), err)
	}
	return text
}

// TestTenLayers: the kernel shows in the stack what rm and tar make of the same layers, file by file.
func TestTenLayers(t *testing.T) {
	flat := t.TempDir()
	var packed [][]byte
	for _, files := range tenLayers() {
		packed = append(packed, archive(t, files))
		apply(t, flat, files, packed[len(packed)-1])
	}
	if diff := gocmp.Diff(describe(t, flat), describe(t, stacked(t, packed))); diff != "" {
		t.Errorf("the stack differs from what the layers say (-want +got):\n%s", diff)
	}
}

// stacked makes a stack of the layers, and mounts it.
func stacked(t *testing.T, layers [][]byte) string {
	t.Helper()
	work := t.TempDir()
	var disk layerdisk.Disk
	var tree erofs.Tree
	below := ""
	for i, packed := range layers {
		name := fmt.Sprintf("%02d.qcow2", i)
		f, err := os.Create(filepath.Join(work, name))
		if err != nil {
			t.Fatal(err)
		}
		disk, err = disk.Layer(f, below, fmt.Sprintf("layer-%d", i), func(w layerdisk.File) (int64, error) {
			made, err := erofs.Convert(bytes.NewReader(packed), w, &tree, erofs.DefaultLimits)
			return made.Size, err
		})
		if err != nil {
			t.Fatalf("layer %d: %v", i, err)
		}
		defer f.Close() // a later layer may give one of its files another name
		below = name
		command(t, "qemu-img", "check", "-q", "-f", "qcow2", filepath.Join(work, name))
	}
	top, err := os.Create(filepath.Join(work, "top.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	if disk, err = disk.Room(top, below, "room", disk.Least(64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := top.Close(); err != nil {
		t.Fatal(err)
	}
	command(t, "qemu-img", "check", "-q", "-f", "qcow2", top.Name())
	raw := filepath.Join(work, "raw")
	command(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", top.Name(), raw)
	said := command(t, "sfdisk", "--verify", "--label", "gpt", raw)
	if !strings.Contains(said, "No errors detected") {
		t.Errorf("sfdisk says of the partition table: %s", said)
	}
	return mounted(t, raw, disk.Parts[:len(disk.Parts)-1])
}

// mounted overlays the partitions.
func mounted(t *testing.T, raw string, parts []layerdisk.Part) string {
	t.Helper()
	dir := t.TempDir()
	var lower []string
	for i, p := range parts {
		loop := command(t, "losetup", "--find", "--show", "--read-only", "--offset", fmt.Sprint(p.Start), "--sizelimit", fmt.Sprint(p.Size), raw)
		t.Cleanup(func() { command(t, "losetup", "--detach", loop) })
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		command(t, "mount", "-t", "erofs", "-o", "ro", loop, at)
		t.Cleanup(func() { command(t, "umount", at) })
		lower = append([]string{at}, lower...)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "-t", "overlay", "-o", "ro,lowerdir="+strings.Join(lower, ":"), "overlay", root)
	t.Cleanup(func() { command(t, "umount", root) })
	return root
}
