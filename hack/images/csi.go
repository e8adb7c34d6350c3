package main

import (
	"context"
	"path"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/oci"
)

// inModule is a program of another module than the root's: the module's folder, and the package.
type inModule struct{ module, pkg string }

var driver = inModule{"driver", "./cmd/localdisk"}

// metadata tells clients what changed between snapshots.
var metadata = inModule{"driver", "./cmd/snapshot-metadata"}

// sidecars are the upstream programs beside the driver.
var sidecars = []inModule{
	{"hack/kubebox/csi/provisioner", "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner"},
	{"hack/kubebox/csi", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"},
	{"hack/kubebox/csi", "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer"},
}

// csi makes the image of the storage driver: Debian's programs for filesystems below, the sidecars and our program on top. It runs
// as root, because the driver makes devices and mounts.
func (b *build) csi(ctx context.Context) (v1.Image, error) {
	base, err := b.packagesOf(ctx, "csi")
	if err != nil {
		return nil, err
	}
	steps := []oci.Step{{Layer: base, What: "e2fsprogs and xfsprogs from Debian"}}
	for _, p := range append(slices.Clone(sidecars), metadata, driver) {
		step, err := b.programOf(ctx, p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return oci.Image(b.arch, v1.Config{
		WorkingDir: "/", Env: []string{"PATH=/usr/bin:/usr/sbin"}, Entrypoint: []string{"/usr/bin/" + path.Base(driver.pkg)},
		Labels: b.labels("csi", "the storage driver localdisk and its sidecars"),
	}, steps...)
}

// programOf builds a program of another module than the root's and makes a layer of it.
func (b *build) programOf(ctx context.Context, p inModule) (oci.Step, error) {
	name, dir := path.Base(p.pkg), b.binaries()
	b.say("building %s", name)
	if err := b.goBuild(ctx, p.module, dir, p.pkg); err != nil {
		return oci.Step{}, err
	}
	return b.program(dir, name)
}
