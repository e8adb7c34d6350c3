package sink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// Existing is a disk that is there already and is changed in places. It is safe for concurrent use on disjoint ranges.
type Existing struct {
	d      *device // with nothing kept back at its end
	device bool
	zeroed atomic.Int64
}

// OpenExisting opens the disk at o.Path.
func OpenExisting(o Options) (*Existing, error) {
	info, err := os.Lstat(o.Path)
	if err != nil {
		return nil, task.Errorf(task.BadTask, "there is no disk that changes could be written to: %w", err)
	}
	flags := os.O_RDWR | unix.O_CLOEXEC
	block := info.Mode()&os.ModeDevice != 0
	switch {
	case block:
		flags |= unix.O_EXCL
	case info.Mode().IsRegular():
		flags |= unix.O_NOFOLLOW
	default:
		return nil, task.Errorf(task.BadTask, "target %s is neither a block device nor a file (%v)", o.Path, info.Mode().Type())
	}
	f, err := os.OpenFile(o.Path, flags, 0)
	if err != nil {
		return nil, Failed(fmt.Errorf("open the disk: %w", err))
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(Failed(fmt.Errorf("measure the disk: %w", err)), f.Close())
	}
	return &Existing{d: &device{o: o, w: newWriter(f, o.Path), size: size, tail: size}, device: block}, nil
}

// Size is the size of the disk, and Tail its end.
func (e *Existing) Size() int64 { return e.d.size }

// Tail is the end of the disk, because no part of it is in memory only.
func (e *Existing) Tail() int64 { return e.d.size }

// Grow makes the disk larger; what is new is zero. A device is as large as it is.
func (e *Existing) Grow(size int64) error {
	if e.device {
		return task.Errorf(task.DoesNotFit, "a disk of %d bytes on a device of %d", size, e.d.size)
	}
	if err := e.d.w.file.Truncate(size); err != nil {
		return Failed(fmt.Errorf("give the disk its size of %d bytes: %w", size, err))
	}
	e.d.size, e.d.tail = size, size
	return nil
}

// zeroMin is the shortest run of zeroes that is not written as bytes: below it the call costs more than the bytes do.
const zeroMin = 64 << 10

// WriteAt implements io.WriterAt. Unlike a new disk, this one may have anything where p has zeroes.
func (e *Existing) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > e.d.size {
		return 0, outside(p, off, e.d.size)
	}
	done := 0
	for done < len(p) {
		n, zero := zeropage.Run(p[done:], off+int64(done))
		var err error
		if zero && n >= zeroMin {
			err = e.Zero(off+int64(done), int64(n))
		} else {
			err = e.d.w.write(p[done:done+n], off+int64(done))
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Zero makes a range read as zeroes. What is behind the end of the disk is zero.
func (e *Existing) Zero(off, n int64) error {
	n = min(n, e.d.size-off)
	if n <= 0 {
		return nil
	}
	e.zeroed.Add(n)
	return e.d.zeroDevice(off, n)
}

// Written counts the bytes that were changed.
func (e *Existing) Written() int64 { return e.d.w.written.Load() + e.zeroed.Load() }

// Sync makes all writes durable.
func (e *Existing) Sync() error { return e.d.w.sync() }

// Close implements io.Closer.
func (e *Existing) Close() error { return e.d.w.close() }
