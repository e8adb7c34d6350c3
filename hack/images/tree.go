package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	_ "embed" // the text of this package
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/berth-vm/berth/hack/images/oci"
)

// The text that decides what goes into a layer is a part of the layer's key.
var (
	//go:embed berth.go
	berthSource string
	//go:embed launcher.go
	launcherSource string
	//go:embed packages.go
	packagesSource string
)

// tree is a small folder of files that go into an image as they are, by path.
type tree map[string][]byte

func readTree(dir string) (tree, error) {
	t := tree{}
	files := os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		t[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	return t, nil
}

func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

// key returns a digest of names and contents.
func (t tree) key() string {
	h := sha256.New()
	for _, name := range t.names() {
		_, _ = fmt.Fprintf(h, "%q %x\n", name, t[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// write writes the files, owned by root.
func (t tree) write(w *oci.Writer) error {
	for _, name := range t.names() {
		header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(t[name]))}
		if err := w.Entry(header, bytes.NewReader(t[name])); err != nil {
			return err
		}
	}
	return nil
}

func sha256File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open program: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
