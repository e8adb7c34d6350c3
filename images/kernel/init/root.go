//go:build linux

package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
	"github.com/berth-vm/berth/internal/imagevm"
)

// Paths until the root is entered.
const (
	newRoot   = "/root"
	layersDir = "/l" // short: all layers' directories must fit into one page
	roomDir   = "/room"
	emptyRoom = "/room.ext4.gz" // a small empty filesystem
)

// partition is the device with a name in the partition table; empty: none is found.
func partition(called string) string {
	files, _ := filepath.Glob("/sys/class/block/*/uevent")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PARTNAME="); ok && name == called {
				return "/dev/" + filepath.Base(filepath.Dir(file))
			}
		}
	}
	return ""
}

// makeRoot overlays the layers and the room that is written to.
func makeRoot(o imagevm.Orders) error {
	if !until(func() bool { return partition(imagevm.RoomName) != "" }) {
		return errors.New("the image's disk is not found: its bus must be virtio or scsi")
	}
	if err := mountRoom(partition(imagevm.RoomName)); err != nil {
		return err
	}
	var lower []string
	for _, n := range o.Layers {
		at := fmt.Sprintf("%s/%d", layersDir, n)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", at, err)
		}
		if err := unix.Mount(partition(imagevm.LayerName(n)), at, "erofs", unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount layer %d: %w", n, err)
		}
		lower = append([]string{at}, lower...) // the top one first
	}
	upper, work := filepath.Join(roomDir, "upper"), filepath.Join(roomDir, "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755), os.MkdirAll(newRoot, 0o755)); err != nil {
		return fmt.Errorf("make the root: %w", err)
	}
	// The root's own owner and mode are those of what lies on top.
	if err := like(lower[0], upper); err != nil {
		return err
	}
	options := "lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", newRoot, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay %d layers: %w", len(lower), err)
	}
	return nil
}

// like gives a directory the owner and the mode of another.
func like(from, to string) error {
	var s unix.Stat_t
	if err := unix.Stat(from, &s); err != nil {
		return fmt.Errorf("look at %s: %w", from, err)
	}
	if err := errors.Join(unix.Chown(to, int(s.Uid), int(s.Gid)), unix.Chmod(to, s.Mode&0o7777)); err != nil {
		return fmt.Errorf("make the root: %w", err)
	}
	return nil
}

// mountRoom puts a small filesystem onto a partition and lets it grow to the partition's size. There is no program to make one here, and
// the kernel needs none to make one larger.
func mountRoom(dev string) error {
	if err := lay(emptyRoom, dev); err != nil {
		return fmt.Errorf("make the filesystem that is written to: %w", err)
	}
	if err := os.MkdirAll(roomDir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", roomDir, err)
	}
	if err := unix.Mount(dev, roomDir, "ext4", unix.MS_NOATIME, "nodiscard"); err != nil {
		return fmt.Errorf("mount the filesystem that is written to: %w", err)
	}
	f, err := os.Open(roomDir)
	if err != nil {
		return fmt.Errorf("open the filesystem that is written to: %w", err)
	}
	defer func() { _ = f.Close() }()
	sectors := hardware.ReadLine("/sys/class/block/" + filepath.Base(dev) + "/size")
	var n uint64
	if _, err := fmt.Sscan(sectors, &n); err != nil {
		return fmt.Errorf("size of %s: %w", dev, err)
	}
	const resize = 0x40086610 // EXT4_IOC_RESIZE_FS: _IOW('f', 16, __u64)
	count := n * 512 / 4096
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), resize, uintptr(unsafe.Pointer(&count))); e != 0 { //nolint:gosec // the ioctl takes a pointer
		return fmt.Errorf("grow the filesystem that is written to: %w", e)
	}
	return nil
}

// lay writes a compressed image to a device, without its empty blocks: what the device has there is zero already.
func lay(image, dev string) error {
	in, err := os.Open(image)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	z, err := gzip.NewReader(bufio.NewReader(in))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	block, zero := make([]byte, 4096), [4096]byte{}
	for at := int64(0); ; at += int64(len(block)) {
		_, err := io.ReadFull(z, block)
		if errors.Is(err, io.EOF) {
			return errors.Join(out.Sync(), out.Close())
		}
		if err == nil && [4096]byte(block) != zero {
			_, err = out.WriteAt(block, at)
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
}

// enterRoot makes the overlay the root, with what the kernel shows of itself, as container runtimes have it.
func enterRoot() error {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		to := newRoot + dir
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", to, err)
		}
		if err := unix.Mount(dir, to, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := errors.Join(os.Chdir(newRoot), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/")); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	for _, m := range []struct{ kind, dir, options string }{
		{"devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666"}, {"tmpfs", "/dev/shm", "mode=1777,size=50%"}, {"mqueue", "/dev/mqueue", ""},
	} {
		if os.MkdirAll(m.dir, 0o755) == nil {
			_ = unix.Mount(m.kind, m.dir, m.kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, m.options) // a program that needs it says so
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		_ = os.Symlink(to, "/dev/"+name) // some kernels have them already
	}
	return nil
}
