package main

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/berth-vm/berth/images"
)

// image is one of a release's: an index of what there is for each architecture.
type image struct {
	name    string // its repository, such as berth-launcher
	version string
	digest  v1.Hash
	index   v1.ImageIndex
}

// at returns the image at a registry, by digest.
func (i image) at(registry string) string { return registry + "/" + i.name + "@" + i.digest.String() }

// readImages reads the images of a release.
func readImages(dist string) ([]image, error) {
	dir := filepath.Join(dist, imagesDir)
	from, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("there is no release in %s (make release VERSION=v0.2.0 makes one): %w", dist, err)
	}
	all, err := from.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	var found []image
	for _, d := range manifest.Manifests {
		i := image{digest: d.Digest}
		i.name, i.version, _ = strings.Cut(d.Annotations[images.RefName], ":")
		if i.name == "" || i.version == "" {
			return nil, fmt.Errorf("image %s in %s has no name", d.Digest, dir)
		}
		if i.index, err = all.ImageIndex(d.Digest); err != nil {
			return nil, fmt.Errorf("read %s: %w", i.name, err)
		}
		found = append(found, i)
	}
	return found, nil
}

// named finds an image by the name that manifests of the source tree use for it.
func named(all []image, name string) (image, error) {
	for _, i := range all {
		if i.name == images.Repository(name) {
			return i, nil
		}
	}
	return image{}, fmt.Errorf("the release has no image %s", images.Repository(name))
}
