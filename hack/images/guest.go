package main

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/hack/images/bootdisk"
	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/hack/images/oci"
	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/images/guest"
)

// flavour is one kind of test guest. They differ in the kernel: Debian's cloud kernel reaches our init in half the time of the generic
// one under emulation, but has no driver for SATA and USB disks.
type flavour struct {
	dir     string
	kernel  string   // a package that depends on the newest kernel of its kind
	modules []string // lists in images/guest
}

var (
	cloudGuest = flavour{"guest", "linux-image-cloud-amd64", []string{"modules"}}

	genericGuest = flavour{
		"guest-generic", "linux-image-amd64", []string{"modules", "modules.generic"},
	}
)

func (b *build) cloudGuest(ctx context.Context) (v1.Image, error) { return b.guest(ctx, cloudGuest) }
func (b *build) genericGuest(ctx context.Context) (v1.Image, error) {
	return b.guest(ctx, genericGuest)
}

// guest makes a test guest's disks and the container disk that holds one of them.
func (b *build) guest(ctx context.Context, f flavour) (v1.Image, error) {
	in, err := b.guestInputs(ctx, f)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.out, f.dir)
	m, err := bootdisk.Build(ctx, in, dir)
	if err != nil {
		return nil, err
	}
	b.say("guest disk sha256:%s kernel %s in %s", m.Files[guest.Raw].SHA256, m.KernelVersion, dir)
	return b.containerDisk(dir, m)
}

func (b *build) guestInputs(ctx context.Context, f flavour) (bootdisk.Inputs, error) {
	in := bootdisk.Inputs{Config: b.source("guest"), Modules: f.modules}
	names, err := debian.ReadList(b.source("guest", "packages"))
	if err != nil {
		return in, err
	}
	kernel, err := debian.Dependency(ctx, f.kernel)
	if err != nil {
		return in, err
	}
	packages, err := b.debs.Named(ctx, append(names, kernel)...)
	if err != nil {
		return in, err
	}
	if err := b.debs.Fetch(ctx, packages); err != nil {
		return in, err
	}
	for _, p := range packages {
		if p.Name == kernel {
			in.Kernel = b.debs.Path(p)
		} else {
			in.GRUB = append(in.GRUB, b.debs.Path(p))
		}
	}
	programs := filepath.Join(b.cache, "guest")
	if err := b.goBuild(ctx, "", programs, "./images/guest/init"); err != nil {
		return in, err
	}
	in.Init = filepath.Join(programs, "init")
	return in, nil
}

// containerDisk returns the guest as KubeVirt expects disks in a container image: one file in /disk, owned by qemu. The kernel
// and the initramfs are in a layer of their own, for machines that boot them directly.
func (b *build) containerDisk(dir string, m guest.Manifest) (v1.Image, error) {
	disk, err := b.layers.Layer(oci.Recipe+"disk "+m.Files[guest.QCOW2].SHA256, func(w *oci.Writer) error {
		return w.File("disk/disk.qcow2", filepath.Join(dir, guest.QCOW2), 0o440, images.UID)
	})
	if err != nil {
		return nil, err
	}
	boot, err := b.layers.Layer(oci.Recipe+"boot "+m.Files[guest.Kernel].SHA256+m.Files[guest.Initramfs].SHA256, func(w *oci.Writer) error {
		if err := w.File("boot/vmlinuz", filepath.Join(dir, guest.Kernel), 0o444, images.UID); err != nil {
			return err
		}
		return w.File("boot/initrd", filepath.Join(dir, guest.Initramfs), 0o444, images.UID)
	})
	if err != nil {
		return nil, err
	}
	return oci.Image(b.arch, v1.Config{}, oci.Step{Layer: disk, What: "test guest disk"}, oci.Step{Layer: boot, What: "kernel and initramfs"})
}
