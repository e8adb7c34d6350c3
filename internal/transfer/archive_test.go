package transfer

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
)

func TestArchive(t *testing.T) {
	good := disktest.Tarball(t, disktest.Entry(tar.TypeDir, "d/", ""), disktest.Entry(tar.TypeReg, "d/file", "text"), disktest.Entry(tar.TypeSymlink, "d/link", "file"),
		disktest.Entry(tar.TypeLink, "hard", "d/file"), disktest.Entry(tar.TypeReg, "d/file2", ""))
	for name, c := range map[string]struct {
		file   []byte
		sum    string
		reason task.Reason
	}{
		"plain":         {good, sumOf(good), task.Completed},
		"gz":            {disktest.Gzip(t, good), sumOf(disktest.Gzip(t, good)), task.Completed},
		"wrong sum":     {good, sumOf(nil), task.ChecksumMismatch},
		"truncated":     {good[:700], "", task.BadImage},
		"no archive":    {disktest.Noise(100_000, 1), "", task.BadImage},
		"device":        {disktest.Tarball(t, disktest.Entry(tar.TypeBlock, "sda", "")), "", task.UnsafeImage},
		"traversal":     {disktest.Tarball(t, disktest.Entry(tar.TypeReg, "../x", "y")), "", task.UnsafeImage},
		"through link":  {disktest.Tarball(t, disktest.Entry(tar.TypeSymlink, "l", "/tmp"), disktest.Entry(tar.TypeReg, "l/x", "y")), "", task.UnsafeImage},
		"link to /":     {disktest.Tarball(t, disktest.Entry(tar.TypeLink, "l", "/etc/passwd")), "", task.UnsafeImage},
		"a huge sparse": {disktest.Gzip(t, sparseBomb(t)), "", task.DoesNotFit},
	} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir()
			k := fromURL(web(t, c.file, "1"), to)
			k.Target.Content, k.Checksum = task.Archive, c.sum
			r := New(k).Run(t.Context())
			if r.Reason != c.reason {
				t.Fatalf("report %+v", r)
			}
			if c.reason != task.Completed {
				if _, err := os.Lstat(filepath.Join(to, ".berth-unpacking")); err != nil {
					t.Error("a directory that is not complete is not marked")
				}
				return
			}
			if b, err := os.ReadFile(filepath.Join(to, "hard")); err != nil || string(b) != "text" {
				t.Errorf("hard: %q, %v", b, err)
			}
			if b, err := os.ReadFile(filepath.Join(to, "d/link")); err != nil || string(b) != "text" {
				t.Errorf("link: %q, %v", b, err)
			}
		})
	}
}

// TestArchiveAfterAnother: a try that was killed has left files of an earlier version of the archive, and directories that may not
// be written to. They are gone afterwards, on a claim; a directory that a user named keeps its files.
func TestArchiveAfterAnother(t *testing.T) {
	good := disktest.Tarball(t, disktest.Entry(tar.TypeReg, "d/file", "text"))
	for name, claim := range map[string]string{"claim": "claim-1", "by hand": ""} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir()
			for _, dir := range []string{"old/locked", "lost+found"} {
				if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range []string{"foreign", "old/locked/file", ".berth-unpacking", "lost+found/x"} {
				if err := os.WriteFile(filepath.Join(to, file), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(to, "old/locked"), 0o500); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "old/locked"), 0o700) })
			k := fromURL(web(t, good, "1"), to)
			k.Target.Content, k.Claim = task.Archive, claim
			if r := New(k).Run(t.Context()); r.Outcome != task.Done {
				t.Fatalf("report %+v", r)
			}
			for file, there := range map[string]bool{"d/file": true, "foreign": claim == "", "old/locked/file": claim == "", "lost+found/x": true,
				".berth-unpacking": false} {
				if _, err := os.Lstat(filepath.Join(to, file)); (err == nil) != there {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

// sparseBomb returns an entry that says it is an exbibyte large, and almost all of it a hole.
func sparseBomb(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bomb", Size: 1 << 60, Mode: 0o644, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), make([]byte, 4096)...)
}

func TestRegistry(t *testing.T) {
	disk := disktest.Text(9<<20, 4)
	layer := func(content []byte, more ...tar.Header) []byte {
		return disktest.Tarball(t, append([]tar.Header{disktest.Entry(tar.TypeDir, "disk/", ""), disktest.Entry(tar.TypeReg, "disk/disk.img", string(content))}, more...)...)
	}
	image := disktest.QCOW2(t, disk, 1, true, true)
	for name, c := range map[string]struct {
		layer  []byte
		format string
		reason task.Reason
	}{
		"raw in gz":         {disktest.Gzip(t, layer(disk)), "raw", task.Completed},
		"qcow2 in gz":       {disktest.Gzip(t, layer(image)), "qcow2", task.Completed},
		"qcow2 in plain":    {layer(image), "qcow2", task.Completed},
		"qcow2.gz in gz":    {disktest.Gzip(t, layer(disktest.Gzip(t, image))), "qcow2.gz", task.Completed},
		"two disks":         {disktest.Gzip(t, layer(disk, disktest.Entry(tar.TypeReg, "disk/other.img", "x"))), "", task.BadImage},
		"no disk":           {disktest.Gzip(t, disktest.Tarball(t, disktest.Entry(tar.TypeReg, "etc/passwd", "x"))), "", task.BadImage},
		"ends in the disk":  {disktest.Gzip(t, layer(disk)[:5<<20]), "", task.BadImage},
		"disk is a symlink": {disktest.Gzip(t, disktest.Tarball(t, disktest.Entry(tar.TypeSymlink, "disk/disk.img", "/etc/shadow"))), "", task.UnsafeImage},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL("", to)
			k.Source = task.Source{Registry: &task.Registry{URL: disktest.Push(t, c.layer), PlainHTTP: true}}
			r := New(k).Run(t.Context())
			if r.Reason != c.reason || c.format != "" && r.Format != c.format {
				t.Fatalf("report %+v", r)
			}
			if c.reason == task.Completed {
				wantDisk(t, to, disk, len(disk))
			} else if names, _ := os.ReadDir(filepath.Dir(to)); len(names) != 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}
