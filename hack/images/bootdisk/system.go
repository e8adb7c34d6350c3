package bootdisk

import (
	"context"
	"crypto/sha256"
	_ "embed" // the text of this file
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/images/debian"
	"github.com/berth-vm/berth/images/guest"
)

// System has the inputs of the disk of a whole Debian.
type System struct {
	Config   string   // folder of grub.cfg and disk.sfdisk
	Packages []string // by name; what they depend on comes along
	Versions string   // every package with its version: a newer one makes another disk
	GRUB     []string // as in Inputs
	Mirror   string   // where Debian's packages are
	Release  string   // the codename of Debian's release
	Debs     string   // folder in which downloaded packages are kept
}

//go:embed system.go
var systemSource string

// files are written into the system after its packages.
var files = map[string]string{
	"etc/fstab":    "LABEL=debian / ext4 defaults 0 1\n",
	"etc/hostname": "debian\n",
	// The next start makes another, as each machine needs its own.
	"etc/machine-id": "",
	// cloud-init asks every cloud there is otherwise, which takes minutes under emulation.
	"etc/cloud/cloud.cfg.d/90_sources.cfg": "datasource_list: [NoCloud, ConfigDrive, None]\nlocale: C.UTF-8\n",
}

// BuildSystem makes the disk in dir. If the manifest there says that it was made from the same inputs, it is left alone. It needs root.
func BuildSystem(ctx context.Context, in System, dir string) (guest.Manifest, error) {
	digest, err := in.digest()
	if err != nil {
		return guest.Manifest{}, err
	}
	if m, err := guest.ReadManifest(dir); err == nil && m.Inputs == digest {
		if f, err := os.Stat(filepath.Join(dir, debian.QCOW2)); err == nil && f.Size() == m.Files[debian.QCOW2].Size {
			return m, nil
		}
	}
	if err := errors.Join(guest.RemoveManifest(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return guest.Manifest{}, err
	}
	work, err := os.MkdirTemp(dir, ".work-") // which go does not look into for packages
	if err != nil {
		return guest.Manifest{}, fmt.Errorf("make work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := in.build(ctx, dir, work); err != nil {
		return guest.Manifest{}, err
	}
	m := guest.Manifest{Inputs: digest, Files: map[string]guest.File{}}
	if m.Files[debian.QCOW2], err = describe(filepath.Join(dir, debian.QCOW2)); err != nil {
		return m, err
	}
	return m, m.Write(dir)
}

// digest covers everything that the disk is made from.
func (in System) digest() (string, error) {
	inputs := append([]string{in.Versions, in.Release, systemSource, diskSource, grubSource}, in.Packages...)
	for _, name := range append([]string{filepath.Join(in.Config, "grub.cfg"), filepath.Join(in.Config, "disk.sfdisk")}, in.GRUB...) {
		f, err := describe(name)
		if err != nil {
			return "", err
		}
		inputs = append(inputs, filepath.Base(name)+" "+f.SHA256)
	}
	h := sha256.Sum256([]byte(strings.Join(inputs, "\n")))
	return hex.EncodeToString(h[:]), nil
}

func (in System) build(ctx context.Context, dir, work string) error {
	root, grubDir, disk := filepath.Join(work, "root"), filepath.Join(work, "grub"), filepath.Join(work, "disk.img")
	if err := in.install(ctx, root); err != nil {
		return err
	}
	boot, err := kernelIn(root)
	if err != nil {
		return err
	}
	filesystem := filepath.Join(work, "root.img")
	if err := tool(ctx, "/sbin/mke2fs", "-q", "-t", "ext4", "-L", "debian", "-d", root, filesystem, fmt.Sprintf("%dk", debian.RootSize>>10)); err != nil {
		return err
	}
	g, err := unpackGRUB(ctx, in.GRUB, grubDir, filepath.Join(in.Config, "grub.cfg"))
	if err != nil {
		return err
	}
	if err := writeDisk(ctx, disk, debian.DiskSize, filepath.Join(in.Config, "disk.sfdisk"), work, g, boot); err != nil {
		return err
	}
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open disk: %w", err)
	}
	if err := errors.Join(copySparse(f, filesystem, debian.RootOffset), f.Close()); err != nil {
		return fmt.Errorf("write root filesystem: %w", err)
	}
	return tool(ctx, "qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", disk, filepath.Join(dir, debian.QCOW2))
}

// bootstrap installs the packages into a folder.
func (in System) bootstrap(ctx context.Context, root string) error {
	if err := os.MkdirAll(in.Debs, 0o755); err != nil {
		return fmt.Errorf("make folder of packages: %w", err)
	}
	err := tool(ctx, "/usr/sbin/debootstrap", "--variant=minbase", "--cache-dir="+in.Debs, "--include="+strings.Join(in.Packages, ","), in.Release, root, in.Mirror)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(root, "debootstrap", "debootstrap.log"))
		return fmt.Errorf("%w: %s", err, log[max(0, len(log)-2000):])
	}
	return nil
}

// install makes the root filesystem as a folder.
func (in System) install(ctx context.Context, root string) error {
	if err := in.bootstrap(ctx, root); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write file of the system: %w", err)
		}
	}
	// Each machine makes keys of its own, and packages need not be kept twice.
	for _, pattern := range []string{"etc/ssh/ssh_host_*", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*Packages"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well formed
		for _, name := range found {
			if err := os.Remove(name); err != nil {
				return fmt.Errorf("clean the system: %w", err)
			}
		}
	}
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants/systemd-networkd.service")
	if err := os.Symlink("/lib/systemd/system/systemd-networkd.service", wants); err != nil {
		return fmt.Errorf("enable the network: %w", err)
	}
	return nil
}

// kernelIn finds the kernel and the initramfs that the packages put into a system.
func kernelIn(root string) (map[string]string, error) {
	out := map[string]string{}
	for name, pattern := range map[string]string{"vmlinuz": "boot/vmlinuz-*", "initrd": "boot/initrd.img-*"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		if len(found) != 1 {
			return nil, fmt.Errorf("the system has %d files %s, and not one", len(found), pattern)
		}
		out[name] = found[0]
	}
	return out, nil
}
