package transfer

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/internal/task"
)

// tarball makes an archive of the entries in order.
func tarball(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.PAXRecords["BERTH.content"]
		h.PAXRecords = nil
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func entry(kind byte, name, content string) tar.Header {
	h := tar.Header{Typeflag: kind, Name: name}
	if kind == tar.TypeReg {
		h.PAXRecords = map[string]string{"BERTH.content": content}
	} else {
		h.Linkname = content
	}
	return h
}

func TestArchive(t *testing.T) {
	good := tarball(t, entry(tar.TypeDir, "d/", ""), entry(tar.TypeReg, "d/file", "text"), entry(tar.TypeSymlink, "d/link", "file"),
		entry(tar.TypeLink, "hard", "d/file"), entry(tar.TypeReg, "d/file2", ""))
	for name, c := range map[string]struct {
		file   []byte
		sum    string
		reason task.Reason
	}{
		"plain":         {good, sumOf(good), task.Completed},
		"gz":            {gz(t, good), sumOf(gz(t, good)), task.Completed},
		"wrong sum":     {good, sumOf(nil), task.ChecksumMismatch},
		"truncated":     {good[:700], "", task.BadImage},
		"no archive":    {noise(100_000, 1), "", task.BadImage},
		"device":        {tarball(t, entry(tar.TypeBlock, "sda", "")), "", task.UnsafeImage},
		"traversal":     {tarball(t, entry(tar.TypeReg, "../x", "y")), "", task.UnsafeImage},
		"through link":  {tarball(t, entry(tar.TypeSymlink, "l", "/tmp"), entry(tar.TypeReg, "l/x", "y")), "", task.UnsafeImage},
		"link to /":     {tarball(t, entry(tar.TypeLink, "l", "/etc/passwd")), "", task.UnsafeImage},
		"a huge sparse": {gz(t, sparseBomb(t)), "", task.DoesNotFit},
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
	good := tarball(t, entry(tar.TypeReg, "d/file", "text"))
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

// push puts layers into a registry and returns the image's URL.
func push(t *testing.T, layers ...[]byte) string {
	t.Helper()
	return pushSaying(t, nil, layers...)
}

// pushSaying is push with annotations of each layer in the manifest.
func pushSaying(t *testing.T, said map[string]string, layers ...[]byte) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	img := empty.Image
	for _, l := range layers {
		var err error
		if img, err = mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(l, types.DockerLayer), Annotations: said}); err != nil {
			t.Fatal(err)
		}
	}
	host := strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/disks/one:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return "docker://" + host + "/disks/one:latest"
}

func TestRegistry(t *testing.T) {
	disk := text(9<<20, 4)
	layer := func(content []byte, more ...tar.Header) []byte {
		return tarball(t, append([]tar.Header{entry(tar.TypeDir, "disk/", ""), entry(tar.TypeReg, "disk/disk.img", string(content))}, more...)...)
	}
	image := qcow2(t, disk, 1, true, true)
	for name, c := range map[string]struct {
		layer  []byte
		format string
		reason task.Reason
	}{
		"raw in gz":         {gz(t, layer(disk)), "raw", task.Completed},
		"qcow2 in gz":       {gz(t, layer(image)), "qcow2", task.Completed},
		"qcow2 in plain":    {layer(image), "qcow2", task.Completed},
		"qcow2.gz in gz":    {gz(t, layer(gz(t, image))), "qcow2.gz", task.Completed},
		"two disks":         {gz(t, layer(disk, entry(tar.TypeReg, "disk/other.img", "x"))), "", task.BadImage},
		"no disk":           {gz(t, tarball(t, entry(tar.TypeReg, "etc/passwd", "x"))), "", task.BadImage},
		"ends in the disk":  {gz(t, layer(disk)[:5<<20]), "", task.BadImage},
		"disk is a symlink": {gz(t, tarball(t, entry(tar.TypeSymlink, "disk/disk.img", "/etc/shadow"))), "", task.UnsafeImage},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "disk.img")
			k := fromURL("", to)
			k.Source = task.Source{Registry: &task.Registry{URL: push(t, c.layer), PlainHTTP: true}}
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
