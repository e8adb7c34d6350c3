// Package bootdisk makes the test guest's disk: a kernel and an initramfs on a disk that BIOS and UEFI firmware both boot, and the same
// disk in every format that a user may import. It needs no root, no loop device and no mount; the same inputs give the same bytes.
//
// What the guest does once it runs is in images/guest/init.
package bootdisk

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/hack/images/debian"
)

// kernel is the content of a Debian kernel package, unpacked into a folder: vmlinuz, and every module as NAME.ko.
type kernel struct {
	dir     string
	version string
	builtin map[string]bool
}

func unpackKernel(ctx context.Context, deb, dir string) (kernel, error) {
	k := kernel{dir: dir, builtin: map[string]bool{}}
	err := debian.Files(ctx, deb, func(h *tar.Header, content io.Reader) error {
		base := path.Base(h.Name)
		if version, ok := strings.CutPrefix(h.Name, "boot/vmlinuz-"); ok {
			k.version, base = version, "vmlinuz"
		}
		switch {
		case base == "modules.builtin":
			text, err := io.ReadAll(io.LimitReader(content, 1<<20))
			for line := range strings.FieldsSeq(string(text)) {
				k.builtin[moduleName(line)] = true
			}
			return err
		case base == "vmlinuz":
			return writeFile(filepath.Join(dir, base), content)
		case path.Ext(base) == ".ko":
			return writeFile(k.module(moduleName(base)), content)
		}
		return nil
	})
	if err == nil && k.version == "" {
		err = fmt.Errorf("package %s holds no kernel", deb)
	}
	return k, err
}

func (k kernel) vmlinuz() string           { return filepath.Join(k.dir, "vmlinuz") }
func (k kernel) module(name string) string { return filepath.Join(k.dir, name+".ko") }

// moduleName returns how the kernel itself calls the module in a file: dashes and underscores are the same to it.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

// loadOrder lists the wanted modules and all they depend on, each after its dependencies. Built-in ones are left out.
func (k kernel) loadOrder(wanted []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var add func(name, because string) error
	add = func(name, because string) error {
		name = moduleName(name)
		if seen[name] || k.builtin[name] {
			return nil
		}
		seen[name] = true
		depends, err := dependencies(k.module(name))
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("kernel %s has no module %s, wanted by %s", k.version, name, because)
		}
		if err != nil {
			return err
		}
		for _, d := range depends {
			if err := add(d, name); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range wanted {
		if err := add(name, "the list of modules"); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// dependencies reads them from the module itself: the package has no modules.dep, which is made at installation.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open module: %w", err)
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("module %s has no .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read .modinfo of %s: %w", file, err)
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ","), nil
		}
	}
	return nil, nil
}

// The header of an x86 kernel: its magic, and the address that a boot loader should load it to.
const (
	headerMagic      = 0x202
	preferredAddress = 0x258
	// lowest is where kernels were loaded before they had that field. The kernel unpacks itself to where it belongs from there too.
	lowest = 1 << 20
)

// writeLoadable copies a kernel and changes the address that it prefers to be loaded to. GRUB reads a kernel to the lowest free address and
// then copies the room that it needs unpacked, 54 MiB, to the preferred one, byte by byte: a third of the whole start under emulation.
func writeLoadable(to, from string) error {
	image, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy kernel: %w", err)
	}
	if len(image) < preferredAddress+8 || string(image[headerMagic:headerMagic+4]) != "HdrS" {
		return fmt.Errorf("copy kernel: %s is no x86 kernel", from)
	}
	binary.LittleEndian.PutUint64(image[preferredAddress:], lowest)
	return writeFile(to, bytes.NewReader(image))
}

func writeFile(name string, content io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	return nil
}
