package main

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/oci"
)

// makerPrograms are the examples of containers that make volumes.
var makerPrograms = []string{"iscsi", "claim"}

// makers makes the image of the examples of containers that make volumes: Debian's tgt below, the programs on top.
func (b *build) makers(ctx context.Context) (v1.Image, error) {
	base, err := b.packagesOf(ctx, "makers")
	if err != nil {
		return nil, err
	}
	steps := []oci.Step{{Layer: base, What: "tgt from Debian"}}
	dir := b.binaries()
	for _, name := range makerPrograms {
		if err := b.goBuild(ctx, "", dir, "./examples/container-volume/"+name); err != nil {
			return nil, err
		}
		step, err := b.program(dir, name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return oci.Image(b.arch, v1.Config{
		User: user, WorkingDir: "/", Env: []string{"PATH=/usr/bin:/usr/sbin"},
		Labels: b.labels("volume-makers", "examples of containers that make volumes for Berth"),
	}, steps...)
}
