package bootdisk

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed" // the text of this package
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/images/guest"
)

// Inputs are all that a guest is made from.
type Inputs struct {
	Config  string   // folder of grub.cfg, disk.sfdisk and the lists of modules
	Modules []string // lists of modules the guest loads, file names in Config
	Init    string   // the static program that becomes process 1
	Kernel  string   // a Debian kernel package
	GRUB    []string // the packages of grub-mkimage and of both platforms
}

// A change of this package changes what it makes of the same inputs, so its own text is one more input.
var (
	//go:embed build.go
	buildSource string
	//go:embed disk.go
	diskSource string
	//go:embed grub.go
	grubSource string
	//go:embed initramfs.go
	initramfsSource string
	//go:embed kernel.go
	kernelSource string
	//go:embed direct.go
	directSource string

	source = []string{buildSource, diskSource, grubSource, initramfsSource, kernelSource}
)

// Recipe returns the text of what Direct makes its files with, as a key for a cache.
func Recipe() string { return buildSource + initramfsSource + kernelSource + directSource }

// Build makes every file of the guest in dir. If the manifest there says that they were made from the same inputs, they are left alone.
func Build(ctx context.Context, in Inputs, dir string) (guest.Manifest, error) {
	digest, err := in.digest(ctx)
	if err != nil {
		return guest.Manifest{}, err
	}
	if m, err := guest.ReadManifest(dir); err == nil && m.Inputs == digest && complete(m, dir) {
		return m, nil
	}
	// The old manifest goes first: files half made must not look like what it describes.
	if err := guest.RemoveManifest(dir); err != nil {
		return guest.Manifest{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return guest.Manifest{}, fmt.Errorf("make guest folder: %w", err)
	}
	work, err := os.MkdirTemp("", "berth-guest-")
	if err != nil {
		return guest.Manifest{}, fmt.Errorf("make work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	version, err := in.build(ctx, dir, work)
	if err != nil {
		return guest.Manifest{}, err
	}
	if err := writeFormats(ctx, dir); err != nil {
		return guest.Manifest{}, err
	}
	m := guest.Manifest{Inputs: digest, KernelVersion: version, Files: map[string]guest.File{}}
	for _, name := range allFiles {
		if m.Files[name], err = describe(filepath.Join(dir, name)); err != nil {
			return m, err
		}
	}
	return m, m.Write(dir)
}

var allFiles = []string{
	guest.Raw, guest.QCOW2, guest.QCOW2Compressed, guest.Gzip, guest.XZ, guest.Zstd, guest.Kernel, guest.Initramfs,
}

func (in Inputs) build(ctx context.Context, dir, work string) (kernelVersion string, err error) {
	kernelDir, grubDir := filepath.Join(work, "kernel"), filepath.Join(work, "grub")
	if err := errors.Join(os.Mkdir(kernelDir, 0o755), os.Mkdir(grubDir, 0o755)); err != nil {
		return "", fmt.Errorf("make work folder: %w", err)
	}
	k, err := unpackKernel(ctx, in.Kernel, kernelDir)
	if err != nil {
		return "", err
	}
	var wanted []string
	for _, list := range in.Modules {
		names, err := debian.ReadList(filepath.Join(in.Config, list))
		if err != nil {
			return "", err
		}
		wanted = append(wanted, names...)
	}
	modules, err := k.loadOrder(wanted)
	if err != nil {
		return "", err
	}
	files := map[string]string{"vmlinuz": filepath.Join(dir, guest.Kernel), "initrd": filepath.Join(dir, guest.Initramfs)}
	if err := writeLoadable(files["vmlinuz"], k.vmlinuz()); err != nil {
		return "", err
	}
	archive := filepath.Join(work, "initrd")
	if err := writeInitramfs(archive, in.Init, k, modules); err != nil {
		return "", err
	}
	// The boot loader reads through emulated firmware, which takes longer than unpacking a third of the bytes.
	if err := tool(ctx, "zstd", "-q", "-f", "-19", "--single-thread", archive, "-o", files["initrd"]); err != nil {
		return "", err
	}
	g, err := unpackGRUB(ctx, in.GRUB, grubDir, filepath.Join(in.Config, "grub.cfg"))
	if err != nil {
		return "", err
	}
	return k.version, writeDisk(ctx, filepath.Join(dir, guest.Raw), guest.DiskSize, filepath.Join(in.Config, "disk.sfdisk"), work, g, files)
}

// digest covers the content of every input and the programs that turn them into files.
func (in Inputs) digest(ctx context.Context) (string, error) {
	h := sha256.New()
	files := append([]string{in.Init, in.Kernel}, in.GRUB...)
	for _, name := range append([]string{"grub.cfg", "disk.sfdisk"}, in.Modules...) {
		files = append(files, filepath.Join(in.Config, name))
	}
	for _, file := range files {
		d, err := describe(file)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(h, "%s %s\n", filepath.Base(file), d.SHA256)
	}
	for _, version := range [][]string{
		{"qemu-img", "--version"}, {"xz", "--version"}, {"zstd", "--version"}, {"mtools", "--version"}, {"/sbin/sfdisk", "--version"},
	} {
		out, err := exec.CommandContext(ctx, version[0], version[1:]...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s --version: %w", version[0], err)
		}
		_, _ = h.Write(out)
	}
	for _, text := range source {
		_, _ = io.WriteString(h, text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func complete(m guest.Manifest, dir string) bool {
	for _, name := range allFiles {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() != m.Files[name].Size {
			return false
		}
	}
	return true
}

func describe(path string) (guest.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return guest.File{}, fmt.Errorf("open input: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return guest.File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return guest.File{SHA256: hex.EncodeToString(h.Sum(nil)), Size: n}, nil
}

func copyFile(to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer func() { _ = f.Close() }()
	return writeFile(to, f)
}

// writeFormats makes all formats of the raw disk in dir.
func writeFormats(ctx context.Context, dir string) error {
	raw := filepath.Join(dir, guest.Raw)
	// One coroutine (-m 1) and several xz blocks of a fixed size: otherwise the bytes would depend on the machine's load and cores.
	for _, command := range [][]string{
		{"qemu-img", "convert", "-q", "-m", "1", "-f", "raw", "-O", "qcow2", raw, filepath.Join(dir, guest.QCOW2)},
		{"qemu-img", "convert", "-q", "-m", "1", "-c", "-f", "raw", "-O", "qcow2", raw, filepath.Join(dir, guest.QCOW2Compressed)},
		{"zstd", "-q", "-f", "--single-thread", raw, "-o", filepath.Join(dir, guest.Zstd)},
		{"xz", "-q", "--force", "--keep", "--threads=2", "--block-size=16MiB", raw},
	} {
		if err := tool(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return writeGzip(filepath.Join(dir, guest.Gzip), raw)
}

func writeGzip(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("compress disk: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("compress disk: %w", err)
	}
	w := gzip.NewWriter(out)
	_, err = io.Copy(w, in)
	if err := errors.Join(err, w.Close(), out.Close()); err != nil {
		return fmt.Errorf("compress disk: %w", err)
	}
	return nil
}
