package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Step is a layer and a line that says what it is.
type Step struct {
	Layer v1.Layer
	What  string
}

// Image stacks layers under a configuration, for Linux on an architecture.
func Image(arch string, config v1.Config, steps ...Step) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	var err error
	for _, s := range steps {
		history := v1.History{Created: v1.Time{Time: Epoch}, CreatedBy: s.What}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: s.Layer, History: history}); err != nil {
			return nil, fmt.Errorf("append layer %s: %w", s.What, err)
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image configuration: %w", err)
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created, file.Config = arch, "linux", v1.Time{Time: Epoch}, config
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("set image configuration: %w", err)
	}
	return image, nil
}

// Archive writes an image as an OCI archive under its full name, and its digest beside it as PATH.digest. It reports whether the
// archive changed; one that holds this image already is left alone, so that a loader sees it without reading the archive.
func Archive(path, name string, image v1.Image) (digest string, changed bool, err error) {
	hash, err := image.Digest()
	if err != nil {
		return "", false, fmt.Errorf("digest of %s: %w", name, err)
	}
	digest = hash.String()
	if old, err := os.ReadFile(path + ".digest"); err == nil && strings.TrimSpace(string(old)) == digest {
		if _, err := os.Stat(path); err == nil {
			return digest, false, nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", false, fmt.Errorf("make folder for %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "archive-")
	if err != nil {
		return "", false, fmt.Errorf("write archive: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err := errors.Join(writeArchive(tmp, filepath.Dir(path), name, image), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return "", false, fmt.Errorf("write archive %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return "", false, fmt.Errorf("keep archive: %w", err)
	}
	if err := os.WriteFile(path+".digest", []byte(digest+"\n"), 0o644); err != nil {
		return "", false, fmt.Errorf("keep digest: %w", err)
	}
	return digest, true, nil
}

// writeArchive writes the image layout of the OCI as a tar: the index first, so that a reader learns early what is coming. The layout is
// made in a folder of its own in beside, where there is room for the archive too.
func writeArchive(to io.Writer, beside, name string, image v1.Image) error {
	dir, err := os.MkdirTemp(beside, "layout-")
	if err != nil {
		return fmt.Errorf("make a folder for the layout: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	about, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	files, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	// containerd reads the first name, other programs read the second.
	names := map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	if err := files.AppendImage(image, layout.WithAnnotations(names), layout.WithPlatform(*about.Platform())); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	w := &Writer{tar: tar.NewWriter(to), made: map[string]bool{}}
	if err := errors.Join(w.File("oci-layout", filepath.Join(dir, "oci-layout"), 0o644, 0), w.File("index.json", filepath.Join(dir, "index.json"), 0o644, 0)); err != nil {
		return err
	}
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
	if err != nil {
		return fmt.Errorf("list layout: %w", err)
	}
	for _, path := range blobs {
		if err := w.File(strings.TrimPrefix(path, dir+"/"), path, 0o644, 0); err != nil {
			return err
		}
	}
	return w.tar.Close()
}
