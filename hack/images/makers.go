package main

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
)

// makerPrograms are the examples of containers that make volumes.
var makerPrograms = []string{"iscsi", "claim"}

// makers makes the image of the examples of containers that make volumes: Debian's tgt below, the programs on top.
func (b *build) makers(ctx context.Context) error {
	names, err := debian.ReadList(b.source("makers", "packages"))
	if err != nil {
		return err
	}
	packages, err := b.debs.Named(ctx, names...)
	if err != nil {
		return err
	}
	base, err := b.packagesLayer(ctx, packages)
	if err != nil {
		return err
	}
	steps := []oci.Step{{Layer: base, What: "tgt from Debian"}}
	dir := filepath.Join(b.cache, "programs")
	for _, name := range makerPrograms {
		if err := b.goBuild(ctx, "", dir, "./examples/container-volume/"+name); err != nil {
			return err
		}
		step, err := b.program(dir, name)
		if err != nil {
			return err
		}
		steps = append(steps, step)
	}
	image, err := oci.Image(v1.Config{
		User: user, WorkingDir: "/", Env: []string{"PATH=/usr/bin:/usr/sbin"},
		Labels: map[string]string{"org.opencontainers.image.title": "volume-makers"},
	}, steps...)
	if err != nil {
		return err
	}
	return b.archive(images.MakersArchive, images.Makers, image)
}
