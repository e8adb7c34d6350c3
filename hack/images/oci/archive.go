package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
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
// archive changed; one that holds this image already is left alone, so that whoever loads archives can see it from the outside.
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
	if err := errors.Join(writeArchive(tmp, name, image), tmp.Chmod(0o644), tmp.Close()); err != nil {
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

// writeArchive writes the image layout of the OCI as a tar: the index first, so that a reader learns early what is coming.
func writeArchive(to io.Writer, name string, image v1.Image) error {
	manifest, err := image.RawManifest()
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	hash, err := image.Digest()
	if err != nil {
		return fmt.Errorf("read digest: %w", err)
	}
	about, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
		MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: hash,
		Platform: about.Platform(),
		// containerd reads the first, everybody else the second.
		Annotations: map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
	}}})
	if err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	w := &Writer{tar: tar.NewWriter(to), made: map[string]bool{}}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	if err := errors.Join(
		w.bytes("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), w.bytes("index.json", index), w.bytes(blob(hash), manifest),
	); err != nil {
		return err
	}
	configHash, err := image.ConfigName()
	if err != nil {
		return fmt.Errorf("read configuration digest: %w", err)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := w.bytes(blob(configHash), config); err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("read layers: %w", err)
	}
	for _, l := range layers {
		if err := w.layer(blob, l); err != nil {
			return err
		}
	}
	return w.tar.Close()
}

func (w *Writer) bytes(name string, content []byte) error {
	return w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, bytes.NewReader(content))
}

func (w *Writer) layer(blob func(v1.Hash) string, l v1.Layer) error {
	hash, err := l.Digest()
	if err != nil {
		return fmt.Errorf("read layer digest: %w", err)
	}
	size, err := l.Size()
	if err != nil {
		return fmt.Errorf("read layer size: %w", err)
	}
	content, err := l.Compressed()
	if err != nil {
		return fmt.Errorf("open layer: %w", err)
	}
	defer func() { _ = content.Close() }()
	return w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: blob(hash), Mode: 0o644, Size: size}, content)
}
