package backing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/diskspace"
)

// CreateDisk makes an empty disk on a claim that has no source. The file gets its name when it has its size, so a crash leaves no disk that is
// too small.
func CreateDisk(path string, size int64) (Disk, error) {
	unnamed := path + ".new"
	f, err := os.OpenFile(unnamed, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o660)
	if err != nil {
		return Disk{}, fmt.Errorf("make the claim's disk: %w", err)
	}
	if err := errors.Join(diskspace.Size(f, size), f.Sync(), f.Close()); err != nil {
		return Disk{}, fmt.Errorf("make the claim's disk of %d bytes: %w", size, err)
	}
	if err := os.Rename(unnamed, path); err != nil {
		return Disk{}, fmt.Errorf("make the claim's disk: %w", err)
	}
	return Disk{Path: path, Format: "raw"}, nil
}

// Resize makes a sparse file of that size, or gives an existing file this size.
func Resize(path string, size int64) (Disk, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Disk{}, err
	}
	return Disk{Path: path, Format: "raw"}, errors.Join(f.Truncate(size), f.Close())
}

// growLeast is the least that a file grows by if its filesystem limits it: the free space changes with every write.
const growLeast = 16 << 20

// fits returns the size that a disk in a file can have, at most asked bytes: its filesystem may have less room than that. The room that the
// disk takes already counts as free.
func fits(disk *os.File, asked int64) (int64, error) {
	info, err := disk.Stat()
	if err != nil {
		return 0, err
	}
	own, free, err := diskspace.Own(disk, asked)
	if err != nil || !own || info.Size() >= asked {
		return asked, err
	}
	can := diskspace.Fit(asked, free+takes(info))
	if can < asked && can < info.Size()+growLeast {
		return info.Size(), nil
	}
	return can, nil
}

// GrowFile lets the disk in a file grow to asked bytes, or to as many as its filesystem has room for. No guest may have it open.
func GrowFile(path string, asked int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the disk to let it grow: %w", err)
	}
	size, err := fits(f, asked)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && size > info.Size() {
			err = f.Truncate(size)
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("let the disk grow to %d bytes: %w", asked, err)
	}
	return nil
}

// GrownSize returns the size of a device, or the size that a disk in a file can grow to, at most asked bytes; 0 if that is unknown.
func GrownSize(f *os.File, asked int64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Mode()&os.ModeDevice == 0 {
		if asked == 0 {
			return 0, nil
		}
		return fits(f, asked)
	}
	return f.Seek(0, io.SeekEnd)
}

// Duplicate returns a second descriptor of an open file, to measure it later; nil if there is none left. The caller closes it before it tells the
// file's owner that the file is no longer used.
func Duplicate(f *os.File) *os.File {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil // the disk does not grow before the next start
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// Stored returns how many bytes a file takes on its medium; 0 if it cannot be measured.
func Stored(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return takes(info)
}

// takes returns how many bytes a file takes on its medium.
func takes(info os.FileInfo) int64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return s.Blocks * 512
}

// Size returns the size of a file or a device.
func Size(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("measure a disk: %w", err)
	}
	n, err := f.Seek(0, io.SeekEnd)
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("measure a disk: %w", err)
	}
	return n, nil
}

// Clear clears a device. A guest's disk is sent without its holes, so old data would stay where they are.
func Clear(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("clear a device: %w", err)
	}
	const step = 1 << 30 // a device that cannot discard is overwritten: in steps, so that a launcher that is stopped does not wait for all of it
	for at := int64(0); at < size && err == nil; at += step {
		n := min(step, size-at)
		if err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n); err != nil {
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, at, n)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("clear a device: %w", err)
	}
	return nil
}

// VirtualSize returns the size of the disk in a qcow2 file that the launcher made.
func VirtualSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var head [32]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, fmt.Errorf("read the header of the copy: %w", err)
	}
	return int64(binary.BigEndian.Uint64(head[24:])), nil
}
