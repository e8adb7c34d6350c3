package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/diskspace"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// A claim can grow. The disk in it grows with it: a device by itself, and QEMU has to be told; a file when somebody makes it longer, which QEMU
// does if its guest runs. Nothing is ever made smaller.

const (
	growEvery = 2 * time.Second
	// growRetry is how long to wait after QEMU refused: a network disk may have another size than its claim, and a job may use the disk.
	growRetry = time.Minute
	// growLeast is what a file must be able to gain if the filesystem bounds it: what a filesystem has left changes with what is written.
	growLeast = 16 << 20
)

// fits is how large a disk in a file may be for which so many bytes are asked; what it has is not counted as taken.
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

// growFile makes a disk that no guest has as large as its claim allows.
func growFile(path string, asked int64) error {
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

// growth lets the disks of a running guest grow.
type growth struct {
	began map[string]int64   // the sizes that the machine was made with, by volume
	disks map[string]Backing // that it was started with
	last  time.Time
	after map[string]time.Time // volumes that QEMU refused to let grow, and when to try again
}

func newGrowth(m launcherapi.Machine, disks map[string]Backing) *growth {
	return &growth{began: m.Sizes, disks: disks, after: map[string]time.Time{}}
}

// grow tells QEMU about every disk that can be larger than it is.
func (p *plugs) grow(sizes map[string]int64, now time.Time) {
	g := p.growth
	if now.Sub(g.last) < growEvery {
		return
	}
	g.last = now
	drives, err := p.qemu.Drives()
	if err != nil {
		return // QEMU is ending, or somebody else says so
	}
	for volume, d := range drives {
		if now.Before(g.after[volume]) {
			continue
		}
		size, err := p.sizeOf(volume, max(sizes[volume], g.began[volume]))
		if err == nil && size > d.Size {
			if _, err = p.qemu.Run("block_resize", map[string]any{"node-name": d.Node, "size": size}); err == nil {
				p.log.Info("a disk of the guest has grown", "volume", volume, "from", d.Size, "to", size)
			}
		}
		if err != nil {
			g.after[volume] = now.Add(growRetry)
			p.log.Warn("a disk of the guest does not grow", "volume", volume, "to", size, "error", err.Error())
		}
	}
}

// sizeOf is how large a disk of the guest can be; 0 if it is not to change. asked is what its claim has room for, if it is not a device.
func (p *plugs) sizeOf(volume string, asked int64) (int64, error) {
	if plug := p.has[volume]; plug != nil {
		if plug.measure == nil {
			return asked, nil
		}
		return sizeOfFile(plug.measure, asked)
	}
	b, ok := p.growth.disks[volume]
	switch {
	case !ok, b.Copied, b.ReadOnly, b.Early != nil, b.Format != "raw":
		return 0, nil
	case b.Remote != nil:
		return asked, nil
	case !b.Device && asked == 0:
		return 0, nil
	}
	f, err := os.Open(b.Path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return sizeOfFile(f, asked)
}

// sizeOfFile is how large a device is, or how large a disk in a file may be.
func sizeOfFile(f *os.File, asked int64) (int64, error) {
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

// reopen is the same open file once more, for measuring. It is closed before the file's owner is told that it is free.
func reopen(f *os.File) *os.File {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil // the disk does not grow before the next start
	}
	return os.NewFile(uintptr(fd), f.Name())
}
