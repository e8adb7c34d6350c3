package main

import (
	"context"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
)

// sidecars are the upstream programs beside the driver, and below hack/kubebox/csi the modules they are built in.
var sidecars = []struct{ module, pkg string }{
	{"provisioner", "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner"},
	{"", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"},
	{"", "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer"},
}

// csi makes the image of the storage driver: Debian's programs for filesystems below, the sidecars and our program on top. It runs
// as root, because the driver makes devices and mounts.
func (b *build) csi(ctx context.Context) (v1.Image, error) {
	base, err := b.csiBase(ctx)
	if err != nil {
		return nil, err
	}
	steps := []oci.Step{{Layer: base, What: "e2fsprogs and xfsprogs from Debian"}}
	for _, s := range sidecars {
		step, err := b.sidecar(ctx, s.module, s.pkg)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	driver, err := b.programs(ctx, []string{driverProgram})
	if err != nil {
		return nil, err
	}
	return oci.Image(b.arch, v1.Config{
		WorkingDir: "/", Env: []string{"PATH=/usr/bin:/usr/sbin"}, Entrypoint: []string{"/usr/bin/" + driverProgram},
		Labels: b.labels("csi", "the storage driver localdisk and its sidecars"),
	}, append(steps, driver...)...)
}

// csiBase has the packages of the list and no others.
func (b *build) csiBase(ctx context.Context) (v1.Layer, error) {
	names, err := debian.ReadList(b.source("csi", "packages"))
	if err != nil {
		return nil, err
	}
	packages, err := b.debs.Named(ctx, names...)
	if err != nil {
		return nil, err
	}
	return b.packagesLayer(ctx, packages)
}

func (b *build) sidecar(ctx context.Context, module, pkg string) (oci.Step, error) {
	name, dir := path.Base(pkg), b.binaries()
	b.say("building %s", name)
	if err := b.goBuild(ctx, filepath.Join("hack/kubebox/csi", module), dir, pkg); err != nil {
		return oci.Step{}, err
	}
	return b.program(dir, name)
}
