package sink

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

const (
	// directMin is the shortest run that is written with O_DIRECT: below it the wait for the device costs more than the
	// page cache does.
	directMin = 32 << 10
	// bounceSize is how much is copied to aligned memory at a time when the caller's is not.
	bounceSize = 1 << 20
	// DirtyMax is how much may be in the page cache, not yet written back. A container's memory limit counts these pages,
	// and a slow volume with many of them is how a worker gets killed.
	DirtyMax = 64 << 20
)

// writer writes pages: large runs around the page cache, the rest through it. A page is only ever written whole by one
// of the two ways, or in parts through the cache, so the two never disagree.
type writer struct {
	file    *os.File
	direct  atomic.Pointer[os.File] // nil where the target does not allow O_DIRECT
	bounce  sync.Pool
	dirty   atomic.Int64
	written atomic.Int64
}

// newWriter takes over file, and opens path once more for direct writes if that is possible. The two are compared:
// path must still be the file that is open.
func newWriter(file *os.File, path string) *writer {
	w := &writer{file: file}
	w.bounce.New = func() any { b := make([]byte, bounceSize); return &b } // large, so it begins at a page
	d, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return w // tmpfs, some network filesystems
	}
	a, errA := file.Stat()
	b, errB := d.Stat()
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		_ = d.Close()
		return w
	}
	w.direct.Store(d)
	return w
}

func (w *writer) close() error {
	err := w.file.Close()
	if d := w.direct.Load(); d != nil {
		err = errors.Join(err, d.Close())
	}
	return err
}

// sync makes all writes durable.
func (w *writer) sync() error {
	w.dirty.Store(0)
	if err := unix.Fdatasync(int(w.file.Fd())); err != nil {
		return Failed(fmt.Errorf("fsync %s: %w", w.file.Name(), err))
	}
	return nil
}

// writePages writes the pages of p that are not zero.
func (w *writer) writePages(p []byte, off int64) error {
	for len(p) > 0 {
		n, zero := zeropage.Run(p, off)
		if !zero {
			if err := w.write(p[:n], off); err != nil {
				return err
			}
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// write writes all of p.
func (w *writer) write(p []byte, off int64) error {
	w.written.Add(int64(len(p)))
	d := w.direct.Load()
	if d == nil || len(p) < directMin {
		return w.buffered(p, off)
	}
	if head := int(-off & (zeropage.Size - 1)); head > 0 {
		if err := w.buffered(p[:head], off); err != nil {
			return err
		}
		p, off = p[head:], off+int64(head)
	}
	whole := len(p) &^ (zeropage.Size - 1)
	if err := w.around(d, p[:whole], off); err != nil {
		return err
	}
	return w.buffered(p[whole:], off+int64(whole))
}

// around writes aligned bytes around the page cache.
func (w *writer) around(d *os.File, p []byte, off int64) error {
	n, err := d.WriteAt(p, off)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EINVAL) {
		return Failed(err)
	}
	p, off = p[n:], off+int64(n)
	b := w.bounce.Get().(*[]byte)
	defer w.bounce.Put(b)
	for len(p) > 0 {
		m := copy(*b, p)
		if _, err := d.WriteAt((*b)[:m], off); err != nil {
			if !errors.Is(err, syscall.EINVAL) {
				return Failed(err)
			}
			w.direct.CompareAndSwap(d, nil) // wants more than page alignment: not worth finding out what
			return w.buffered(p, off)
		}
		p, off = p[m:], off+int64(m)
	}
	return nil
}

func (w *writer) buffered(p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := w.file.WriteAt(p, off); err != nil {
		return Failed(err)
	}
	if w.dirty.Add(int64(len(p))) > DirtyMax {
		return w.sync()
	}
	return nil
}
