package bootdisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-vm/berth/hack/images/debian"
	"github.com/berth-vm/berth/images/guest"
)

// Direct makes a kernel and an initramfs that QEMU starts without a boot loader, as vmlinuz and initrd in dir. Of the inputs it needs
// no boot loader. The initramfs has a small empty filesystem besides, room.ext4.gz, for an init that needs one.
func Direct(ctx context.Context, in Inputs, dir string) error {
	work, err := os.MkdirTemp("", "berth-kernel-")
	if err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	k, err := unpackKernel(ctx, in.Kernel, work)
	if err != nil {
		return err
	}
	var wanted []string
	for _, list := range in.Modules {
		names, err := debian.ReadList(filepath.Join(in.Config, list))
		if err != nil {
			return err
		}
		wanted = append(wanted, names...)
	}
	modules, err := k.loadOrder(wanted)
	if err != nil {
		return err
	}
	room := filepath.Join(work, "room.ext4.gz")
	if err := writeRoom(ctx, room, filepath.Join(work, "room.ext4")); err != nil {
		return err
	}
	return errors.Join(copyFile(filepath.Join(dir, guest.Kernel), k.vmlinuz()),
		writeInitramfs(filepath.Join(dir, guest.Initramfs), in.Init, k, modules, room))
}

// writeRoom makes an empty ext4 that is small and can become large. There is no journal: what is on it is gone with the machine.
func writeRoom(ctx context.Context, to, raw string) error {
	f, err := os.Create(raw)
	if err != nil {
		return fmt.Errorf("make the filesystem: %w", err)
	}
	if err := errors.Join(f.Truncate(32<<20), f.Close()); err != nil {
		return fmt.Errorf("make the filesystem: %w", err)
	}
	const id = "5f5f5f5f-0000-4000-8000-000000000001" // fixed, with the time: the same inputs give the same bytes
	err = tool(ctx, "env", "E2FSPROGS_FAKE_TIME=1700000000", "/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal",
		"-U", id, "-E", "hash_seed="+id+",lazy_itable_init=0,nodiscard,root_owner=0:0", raw)
	if err != nil {
		return err
	}
	return writeGzip(to, raw)
}
