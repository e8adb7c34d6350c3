package bootdisk

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/hack/images/debian"
)

// grub is the boot loader, unpacked from its packages: grub-mkimage and the modules for both kinds of firmware.
type grub struct{ dir, config string }

func unpackGRUB(ctx context.Context, debs []string, dir, config string) (grub, error) {
	g := grub{dir: dir, config: config}
	for _, platform := range []string{"i386-pc", "x86_64-efi"} {
		if err := os.MkdirAll(filepath.Join(dir, platform), 0o755); err != nil {
			return g, fmt.Errorf("unpack GRUB: %w", err)
		}
	}
	for _, deb := range debs {
		err := debian.Files(ctx, deb, func(h *tar.Header, content io.Reader) error {
			inside, isModule := strings.CutPrefix(h.Name, "usr/lib/grub/")
			switch {
			case h.Typeflag != tar.TypeReg:
				return nil
			case h.Name == "usr/bin/grub-mkimage":
				inside = "grub-mkimage"
			case !isModule || strings.Count(inside, "/") != 1 || !contains(path.Dir(inside), "i386-pc", "x86_64-efi"):
				return nil
			}
			return writeFile(filepath.Join(dir, filepath.FromSlash(inside)), content)
		})
		if err != nil {
			return g, err
		}
	}
	if err := os.Chmod(g.mkimage(), 0o755); err != nil {
		return g, fmt.Errorf("unpack GRUB: %w", err)
	}
	return g, nil
}

func contains(s string, any ...string) bool {
	for _, a := range any {
		if a == s {
			return true
		}
	}
	return false
}

func (g grub) mkimage() string { return filepath.Join(g.dir, "grub-mkimage") }

// image makes a GRUB that holds all it needs. The prefix names the second partition of the disk that the firmware booted, whichever
// it is: two guests' disks in one machine must not boot each other's kernel, as they would if GRUB searched for a label.
func (g grub) image(ctx context.Context, platform string, modules ...string) ([]byte, error) {
	out := filepath.Join(g.dir, platform+".img")
	args := []string{
		"--directory=" + filepath.Join(g.dir, platform), "--format=" + platform, "--prefix=(,gpt2)/", "--config=" + g.config, "--output=" + out,
	}
	if err := tool(ctx, g.mkimage(), append(args, modules...)...); err != nil {
		return nil, err
	}
	image, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read GRUB image: %w", err)
	}
	return image, nil
}

func (g grub) efi(ctx context.Context) ([]byte, error) {
	return g.image(ctx, "x86_64-efi", "part_gpt", "fat", "linux", "boot")
}

// Where GRUB's boot sector and the first sector of its core keep the numbers that its installer fills in.
const (
	bootSectorCode   = 440  // bytes of code before the disk's signature and partition table
	bootSectorTarget = 0x5c // first sector of the core
	coreTarget       = 0x1f4
	sector           = 512
)

// bios returns the code for sector 0 and the core, which is to be written at sector start.
func (g grub) bios(ctx context.Context, start uint64) (boot, core []byte, err error) {
	if core, err = g.image(ctx, "i386-pc", "biosdisk", "part_gpt", "fat", "linux", "boot"); err != nil {
		return nil, nil, err
	}
	boot, err = os.ReadFile(filepath.Join(g.dir, "i386-pc", "boot.img"))
	if err != nil {
		return nil, nil, fmt.Errorf("read GRUB boot sector: %w", err)
	}
	if len(boot) < bootSectorCode || len(core) < sector {
		return nil, nil, fmt.Errorf("GRUB boot sector of %d bytes and core of %d bytes are too short", len(boot), len(core))
	}
	boot = boot[:bootSectorCode]
	binary.LittleEndian.PutUint64(boot[bootSectorTarget:], start)
	binary.LittleEndian.PutUint64(core[coreTarget:], start+1)
	return boot, core, nil
}
