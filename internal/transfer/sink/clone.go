package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
)

// Clone implements Disk: by sharing blocks where the filesystem can, on the server where the filesystem has one.
func (f *file) Clone(ctx context.Context, src *os.File) error {
	info, err := src.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errors.ErrUnsupported
	}
	if err := unix.IoctlFileClone(int(f.w.file.Fd()), int(src.Fd())); err == nil {
		if err := f.w.file.Truncate(f.size); err != nil {
			return Failed(fmt.Errorf("give the disk its size of %d bytes: %w", f.size, err))
		}
		if f.o.Preallocate {
			return f.preallocate()
		}
		return nil
	}
	if !f.remote() {
		return errors.ErrUnsupported // copying with several workers is faster than the kernel's one
	}
	return f.copyRange(ctx, src, info.Size())
}

// remote reports whether the disk's filesystem is on a server that may be able to copy without the data coming here.
func (f *file) remote() bool {
	var s unix.Statfs_t
	if unix.Fstatfs(int(f.w.file.Fd()), &s) != nil {
		return false
	}
	switch s.Type {
	case unix.NFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC:
		return true
	}
	return false
}

// copyStep is how many bytes one call copies, which cannot be interrupted.
const copyStep = 64 << 20

func (f *file) copyRange(ctx context.Context, src *os.File, size int64) error {
	begun := false
	for from := int64(0); from < size; from += copyWindow {
		data, err := DataIn(ctx, src, from, min(size, from+copyWindow))
		if err != nil {
			return err
		}
		for _, d := range data {
			if err := f.copyData(ctx, src, d[0], d[0]+d[1], &begun); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyWindow bounds the list of extents that is in memory.
const copyWindow = 1 << 30

// copyData copies [at, end). An error before the first byte was copied only means that this method does not work.
func (f *file) copyData(ctx context.Context, src *os.File, at, end int64, begun *bool) error {
	for at < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		from, to := at, at
		n, err := unix.CopyFileRange(int(src.Fd()), &from, int(f.w.file.Fd()), &to, int(min(copyStep, end-at)), 0)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case !*begun && err != nil:
			return errors.ErrUnsupported
		case err != nil:
			return Failed(fmt.Errorf("copy at byte %d: %w", at, err))
		case n == 0:
			return task.Errorf(task.SourceChanged, "the source became shorter than %d bytes", end)
		}
		*begun = true
		f.w.written.Add(int64(n))
		at += int64(n)
	}
	return nil
}

// Clone implements Disk. A block device cannot share blocks.
func (d *device) Clone(context.Context, *os.File) error { return errors.ErrUnsupported }
