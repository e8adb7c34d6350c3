package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the text of this file
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/bootdisk"
	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/launcherapi"
)

//go:embed kernel.go
var kernelSource string

// kernel returns the layer of what machines from container images boot: Debian's cloud kernel and our init. Guests are x86_64
// wherever the launcher runs, so it is the same in the images of all architectures.
func (b *build) kernel(ctx context.Context) (v1.Layer, error) {
	own := *b
	own.arch, own.debs.Arch = ownArch, ""
	in, packages, err := own.kernelInputs(ctx)
	if err != nil {
		return nil, err
	}
	key := oci.Recipe + kernelSource + bootdisk.Recipe()
	for _, file := range []string{in.Kernel, in.Init, filepath.Join(in.Config, in.Modules[0])} {
		sum, err := sha256File(file)
		if err != nil {
			return nil, err
		}
		key += " " + sum
	}
	// Tests start the same files without a cluster. A file whose name is the key's says what they were made from.
	dir := filepath.Join(b.out, images.KernelDir)
	stamp := filepath.Join(dir, fmt.Sprintf("made-from-%x", sha256.Sum256([]byte(key))))
	if _, err := os.Stat(stamp); err != nil {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return nil, fmt.Errorf("make kernel folder: %w", err)
		}
		if err := bootdisk.Direct(ctx, in, dir); err != nil {
			return nil, err
		}
		if err := os.WriteFile(stamp, nil, 0o644); err != nil {
			return nil, fmt.Errorf("keep the kernel: %w", err)
		}
	}
	return b.layers.Layer(key, func(w *oci.Writer) error {
		return errors.Join(writeListTo(w, packagesFile+"-"+ownArch, packages),
			w.File(launcherapi.OwnKernel[1:], filepath.Join(dir, guest.Kernel), 0o444, 0),
			w.File(launcherapi.OwnInitrd[1:], filepath.Join(dir, guest.Initramfs), 0o444, 0))
	})
}

func (b *build) kernelInputs(ctx context.Context) (bootdisk.Inputs, []debian.Package, error) {
	in := bootdisk.Inputs{Config: b.source("kernel"), Modules: []string{"modules"}}
	name, err := debian.Dependency(ctx, cloudGuest.kernel)
	if err != nil {
		return in, nil, err
	}
	packages, err := b.debs.Named(ctx, name)
	if err != nil {
		return in, nil, err
	}
	if err := b.debs.Fetch(ctx, packages); err != nil {
		return in, nil, err
	}
	in.Kernel = b.debs.Path(packages[0])
	programs := filepath.Join(b.cache, "kernel")
	in.Init = filepath.Join(programs, "init")
	return in, packages, b.goBuild(ctx, "", programs, "./images/kernel/init")
}

// authorities returns the layer of trusted certificate authorities: the launcher talks to registries and web servers.
func (b *build) authorities(ctx context.Context) (v1.Layer, error) {
	packages, err := b.debs.Named(ctx, "ca-certificates")
	if err != nil {
		return nil, err
	}
	return b.layers.Layer(oci.Recipe+kernelSource+packages[0].SHA256, func(w *oci.Writer) error {
		if err := b.debs.Fetch(ctx, packages); err != nil {
			return err
		}
		list, err := certificates(ctx, b.debs.Path(packages[0]))
		if err != nil {
			return err
		}
		return w.Entry(tar.Header{
			Typeflag: tar.TypeReg, Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Size: int64(len(list)),
		}, bytes.NewReader(list))
	})
}
