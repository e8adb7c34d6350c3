package bootdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The partitions of disk.sfdisk, which says the same to sfdisk: TestLayout holds the two together.
const (
	biosStart = 1 << 20
	biosSize  = 1 << 20
	espStart  = 2 << 20
	espSize   = 62 << 20
)

// writeDisk makes the raw disk: partition table, GRUB for BIOS before the first filesystem, and the EFI system partition, which
// holds GRUB for UEFI, the kernel and the initramfs. Ranges that were not written are holes in the file.
func writeDisk(ctx context.Context, disk string, size int64, layout, work string, g grub, files map[string]string) error {
	f, err := os.Create(disk)
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	table, err := os.ReadFile(layout)
	if err != nil {
		return fmt.Errorf("read layout: %w", err)
	}
	if err := toolWithInput(ctx, bytes.NewReader(table), "/sbin/sfdisk", "--quiet", disk); err != nil {
		return err
	}
	boot, core, err := g.bios(ctx, biosStart/sector)
	if err != nil {
		return err
	}
	if len(core) > biosSize {
		return fmt.Errorf("GRUB has %d bytes, its partition %d", len(core), biosSize)
	}
	esp, err := writeESP(ctx, work, g, files)
	if err != nil {
		return err
	}
	return place(disk, map[int64]io.Reader{0: bytes.NewReader(boot), biosStart: bytes.NewReader(core)}, esp)
}

// writeESP makes the EFI system partition as a file of its own.
func writeESP(ctx context.Context, work string, g grub, files map[string]string) (string, error) {
	esp := filepath.Join(work, "esp.img")
	if err := os.RemoveAll(esp); err != nil {
		return "", fmt.Errorf("make EFI partition: %w", err)
	}
	f, err := os.Create(esp)
	if err != nil {
		return "", fmt.Errorf("make EFI partition: %w", err)
	}
	if err := errors.Join(f.Truncate(espSize), f.Close()); err != nil {
		return "", fmt.Errorf("make EFI partition: %w", err)
	}
	efi, err := g.efi(ctx)
	if err != nil {
		return "", err
	}
	loader := filepath.Join(work, "BOOTX64.EFI")
	if err := os.WriteFile(loader, efi, 0o644); err != nil {
		return "", fmt.Errorf("keep GRUB image: %w", err)
	}
	// GRUB reads cluster by cluster: 8 KiB are the largest of which FAT16 has enough here.
	if err := tool(ctx, "/sbin/mkfs.vfat", "-F", "16", "-s", "16", "-n", "BERTH-ESP", "--invariant", esp); err != nil {
		return "", err
	}
	if err := tool(ctx, "mmd", "-i", esp, "::/EFI", "::/EFI/BOOT"); err != nil {
		return "", err
	}
	if err := tool(ctx, "mcopy", "-i", esp, loader, "::/EFI/BOOT/BOOTX64.EFI"); err != nil {
		return "", err
	}
	for _, name := range []string{"vmlinuz", "initrd"} {
		if err := tool(ctx, "mcopy", "-i", esp, files[name], "::/"+name); err != nil {
			return "", err
		}
	}
	return esp, nil
}

// place writes parts at their offsets, and the EFI partition without its empty blocks.
func place(disk string, parts map[int64]io.Reader, esp string) error {
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open disk: %w", err)
	}
	for at, part := range parts {
		if _, err := io.Copy(io.NewOffsetWriter(f, at), part); err != nil {
			return errors.Join(fmt.Errorf("write disk at %d: %w", at, err), f.Close())
		}
	}
	err = copySparse(f, esp, espStart)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write disk: %w", err)
	}
	return nil
}

func copySparse(to io.WriterAt, from string, at int64) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	block, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(f, block)
		if n > 0 && !bytes.Equal(block[:n], zero[:n]) {
			if _, err := to.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func tool(ctx context.Context, name string, args ...string) error {
	return toolWithInput(ctx, nil, name, args...)
}

// toolWithInput runs a program that makes a part of the disk. It sees a fixed time, because it writes the time to the disk.
func toolWithInput(ctx context.Context, input io.Reader, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = input
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC", "SOURCE_DATE_EPOCH=315532800", "MTOOLS_SKIP_CHECK=1") // 1980, where FAT begins
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
