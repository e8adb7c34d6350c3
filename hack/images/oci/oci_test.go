package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func fill(text string) func(*Writer) error {
	return func(w *Writer) error {
		return errors.Join(
			w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/a", Mode: 0o100755, Size: int64(len(text)), Uname: "someone"},
				strings.NewReader(text)),
			w.Link("bin", "usr/bin"), w.Dir("home", 0o700, 107), w.Dir("usr", 0o700, 107),
		)
	}
}

func layerOf(t *testing.T, c Cache, key, text string) v1.Layer {
	t.Helper()
	l, err := c.Layer(key, fill(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func archiveOf(t *testing.T, text string) (path, digest string) {
	t.Helper()
	image, err := Image("amd64", v1.Config{User: "107:107"}, Step{layerOf(t, Cache{t.TempDir()}, "key", text), "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Errorf("image is not valid: %v", err)
	}
	path = filepath.Join(t.TempDir(), "out", "image.tar")
	digest, changed, err := Archive(path, "example.org/a:dev", image)
	if err != nil || !changed {
		t.Fatalf("archive: changed %t, %v", changed, err)
	}
	if again, changed, err := Archive(path, "example.org/a:dev", image); again != digest || changed || err != nil {
		t.Errorf("archive again: %s, changed %t, %v; want %s, unchanged", again, changed, err, digest)
	}
	return path, digest
}

func TestSameInputsGiveTheSameArchive(t *testing.T) {
	first, firstDigest := archiveOf(t, "content")
	second, secondDigest := archiveOf(t, "content")
	_, otherDigest := archiveOf(t, "other content")
	if firstDigest != secondDigest || firstDigest == otherDigest {
		t.Errorf("digests %s, %s of the same and %s of another content", firstDigest, secondDigest, otherDigest)
	}
	a, errA := os.ReadFile(first)
	b, errB := os.ReadFile(second)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two archives of the same image differ")
	}
}

func TestArchiveNamesItsImageAndHoldsEveryBlob(t *testing.T) {
	path, digest := archiveOf(t, "content")
	files := untar(t, path)
	var index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Digest.String() != digest {
		t.Fatalf("index %+v does not hold %s alone", index.Manifests, digest)
	}
	want := map[string]string{"io.containerd.image.name": "example.org/a:dev", "org.opencontainers.image.ref.name": "example.org/a:dev"}
	if diff := cmp.Diff(want, index.Manifests[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(files["blobs/sha256/"+index.Manifests[0].Digest.Hex], &manifest); err != nil {
		t.Fatal(err)
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		if got := int64(len(files["blobs/sha256/"+d.Digest.Hex])); got != d.Size {
			t.Errorf("blob %s has %d bytes, want %d", d.Digest, got, d.Size)
		}
	}
}

func untar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLayerFixesWhatWouldDiffer(t *testing.T) {
	content, err := layerOf(t, Cache{t.TempDir()}, "key", "content").Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var got []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(Epoch) || h.Uname != "" {
			t.Errorf("%s has time %s and user name %q", h.Name, h.ModTime, h.Uname)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name)
	}
	// Parents come first and only once: the later, stricter entry for usr is dropped.
	want := []string{"drwxr-xr-x usr/", "drwxr-xr-x usr/bin/", "-rwxr-xr-x usr/bin/a", "Lrwxrwxrwx bin", "drwx------ home/"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestLayerIsMadeOncePerKey(t *testing.T) {
	c := Cache{t.TempDir()}
	first := layerOf(t, c, "key", "content")
	again, err := c.Layer("key", func(*Writer) error { return errors.New("made again") })
	if err != nil {
		t.Fatal(err)
	}
	a, _ := first.Digest()
	b, _ := again.Digest()
	if a != b {
		t.Errorf("cached layer has digest %s, want %s", b, a)
	}
	if _, err := c.Layer("other", func(*Writer) error { return os.ErrPermission }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a layer that cannot be filled gives %v", err)
	}
	left, err := filepath.Glob(filepath.Join(c.Dir, "layer-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestPruneKeepsWhatWasUsed(t *testing.T) {
	c := Cache{t.TempDir()}
	layerOf(t, c, "old", "content")
	layerOf(t, c, "used", "content")
	yesterday := time.Now().Add(-24 * time.Hour)
	for _, key := range []string{"old", "used"} {
		if err := os.Chtimes(c.path(key)+".json", yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
	}
	layerOf(t, c, "used", "content")
	if err := c.Prune(yesterday.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(c.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{c.path("used"), c.path("used") + ".json"}, left); diff != "" {
		t.Errorf("left in the cache (-want +got):\n%s", diff)
	}
}

func TestDamagedCacheIsNoticed(t *testing.T) {
	c := Cache{t.TempDir()}
	layerOf(t, c, "key", "content")
	if err := os.Truncate(c.path("key"), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Layer("key", fill("content")); err == nil || !strings.Contains(err.Error(), "has 10 bytes") {
		t.Errorf("a cut layer gives %v", err)
	}
}
