package registry

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// pack writes images as an OCI archive; change may touch each file of the layout, or drop it by returning nil.
func pack(t *testing.T, change func(name string, text []byte) []byte, images ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		if err := l.AppendImage(img); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if change != nil {
			if text = change(name, text); text == nil {
				return nil
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return "oci-archive://" + path
}

func TestArchive(t *testing.T) {
	says(t, task.Registry{URL: pack(t, nil, small(t, "hello"))}, "hello")
}

func TestArchiveConformance(t *testing.T) {
	content := layer(t, entry{name: "disk/a", body: sourcetest.Content(1, 300_000)})
	in := task.Registry{URL: pack(t, nil, build(t, v1.Config{}, content))}
	sourcetest.Read(t, content, func(t *testing.T) source.Blob {
		b, err := open(t.Context(), in, sourcetest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	})
}

func TestArchivesThatAreNone(t *testing.T) {
	drop := func(part string) func(string, []byte) []byte {
		return func(name string, text []byte) []byte {
			if strings.HasPrefix(name, part) {
				return nil
			}
			return text
		}
	}
	spoil := func(name string, text []byte) []byte {
		if strings.HasPrefix(name, "blobs/") && bytes.Contains(text, []byte("layers")) {
			return append(text, ' ')
		}
		return text
	}
	noTar := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(noTar, bytes.Repeat([]byte("x"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url  string
		want task.Reason
	}{
		"not there":       {"oci-archive:///no/such/file", task.SourceNotFound},
		"no tar":          {"oci-archive://" + noTar, task.BadImage},
		"no index":        {pack(t, drop("index.json"), small(t, "x")), task.BadImage},
		"no blobs":        {pack(t, drop("blobs"), small(t, "x")), task.BadImage},
		"empty index":     {pack(t, nil), task.BadImage},
		"spoilt manifest": {pack(t, spoil, small(t, "x")), task.BadImage},
		"two images":      {pack(t, nil, small(t, "x"), small(t, "y")), task.SourceNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t.Context(), task.Registry{URL: c.url}, sourcetest.Patience)
			sourcetest.Fails(t, err, c.want)
		})
	}
}
