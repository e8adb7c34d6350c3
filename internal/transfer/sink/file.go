package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/diskspace"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// file is a disk that is a file. Until it is finished it has another name, so that half a disk is never taken for one:
//
//	.disk.img.berth-part     the disk while it is filled
//	.disk.img.berth-note     the checkpoint
//	.disk.img.berth-parked   bytes of a stream whose place is not known yet
type file struct {
	o     Options
	limit int64 // as Begin found it
	most  int64 // how large the disk becomes if its image is smaller, as Begin found it
	size  int64
	w     *writer // nil before Begin
	park  parkFile

	noting sync.Mutex // guards what follows
	ending bool       // what was parked is gone in part
}

func openFile(o Options) (*file, error) {
	dir := filepath.Dir(o.Path)
	info, err := os.Stat(dir)
	if err != nil {
		return nil, Failed(fmt.Errorf("look at the target's directory: %w", err))
	}
	if !info.IsDir() {
		return nil, task.Errorf(task.BadTask, "%s is not a directory", dir)
	}
	return &file{o: o}, nil
}

func (f *file) beside(what string) string {
	dir, base := filepath.Split(f.o.Path)
	return filepath.Join(dir, "."+base+".berth-"+what)
}

// space returns what the target's filesystem can take: what is free and what Begin will free, and its whole capacity.
func (f *file) space() (free, capacity int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(f.o.Path), &s); err != nil {
		return 0, 0, Failed(fmt.Errorf("measure the target's filesystem: %w", err))
	}
	unit := s.Frsize
	if unit == 0 {
		unit = s.Bsize
	}
	free, capacity = int64(s.Bavail)*unit, int64(s.Blocks)*unit
	for _, name := range []string{f.o.Path, f.beside("part"), f.beside("parked")} {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 1 {
				free += st.Blocks * 512
			}
		}
	}
	return free, capacity, nil
}

// Limit implements Disk. A size was asked for and the filesystem as a whole is smaller, or has nothing on it but this disk: then
// the claim was meant to be that large before a filesystem took its share, and the disk gets the space that the filesystem has. A
// filesystem that is merely too full of other files is different: there the size stands and does not fit.
func (f *file) Limit() (int64, error) {
	free, capacity, err := f.space()
	if err != nil {
		return 0, err
	}
	free &^= zeropage.Size - 1
	if f.o.Size == 0 || f.o.Size > capacity {
		return free, nil
	}
	if f.o.Size > free {
		alone, err := f.alone(free, capacity)
		if alone || err != nil {
			return free, err
		}
		return 0, task.Errorf(task.DoesNotFit, "a disk of %d bytes was asked for, but its filesystem has only %d of %d bytes free", f.o.Size, free, capacity)
	}
	return f.o.Size, nil
}

// whole returns how large a disk is made that has room behind its image.
func (f *file) whole() (int64, error) {
	free, capacity, err := f.space()
	if err != nil {
		return 0, err
	}
	fits := diskspace.Fit(f.o.Size, free)
	if fits < f.o.Size && f.o.Size <= capacity {
		alone, err := f.alone(free, capacity)
		if !alone || err != nil {
			return f.o.Size, err // the filesystem is not the disk's alone, and who shares it may use what is left
		}
	}
	return fits, nil
}

// ownShare is the part of its capacity, in percent, that a filesystem without files keeps at most: xfs 8 % of 300 MiB, ext4 2 %.
// (What it takes before it has a capacity, for a journal, is not in it.)
const ownShare = 10

// alone reports whether only this disk takes space on the filesystem. A directory may show only a part of the filesystem, so the
// free space counts too.
func (f *file) alone(free, capacity int64) (bool, error) {
	if capacity-free > capacity/100*ownShare {
		return false, nil
	}
	dir, base := filepath.Split(f.o.Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, Failed(fmt.Errorf("look at the target's directory: %w", err))
	}
	for _, e := range entries {
		if name := e.Name(); name != base && name != "lost+found" && !strings.HasPrefix(name, "."+base+".berth-") {
			return false, nil
		}
	}
	return true, nil
}

// Begin implements Disk.
func (f *file) Begin(size int64, resume bool) error {
	if f.w != nil { // an earlier run could not be continued after all
		if err := f.w.close(); err != nil {
			return Failed(err)
		}
		f.w = nil
	}
	var err error
	if f.limit, err = f.Limit(); err != nil {
		return err
	}
	if f.most, err = f.whole(); err != nil {
		return err
	}
	f.size = f.final(size)
	part := f.beside("part")
	flags := os.O_RDWR | unix.O_NOFOLLOW
	if !resume {
		if err := f.clear(); err != nil {
			return err
		}
		flags |= os.O_CREATE | os.O_EXCL
	}
	h, err := os.OpenFile(part, flags, 0o660)
	if resume && errors.Is(err, fs.ErrNotExist) {
		return f.finished()
	}
	if err != nil {
		return Failed(fmt.Errorf("make the disk: %w", err))
	}
	f.w = newWriter(h, part)
	if resume {
		return f.resume(h, size < 0)
	}
	if err := h.Truncate(f.size); err != nil {
		return Failed(fmt.Errorf("give the disk its size of %d bytes: %w", f.size, err))
	}
	if f.o.Preallocate && size >= 0 {
		return f.preallocate()
	}
	return nil
}

// finished tidies up after a run that was killed between giving the disk its name and removing the note.
func (f *file) finished() error {
	info, err := os.Lstat(f.o.Path)
	if err != nil || !info.Mode().IsRegular() {
		return Failed(fmt.Errorf("the disk vanished while it was continued: %w", err))
	}
	f.size = info.Size()
	if err := f.tidy(); err != nil {
		return err
	}
	return ErrFinished
}

// final returns how large the disk of an image of this size becomes; while the size is not known, as large as one may be.
func (f *file) final(size int64) int64 {
	if size < 0 {
		return f.limit
	}
	return max(size, f.most)
}

// Resize implements Disk.
func (f *file) Resize(size int64) error {
	f.size = f.final(size)
	if err := errors.Join(f.w.file.Truncate(size), f.w.file.Truncate(f.size)); err != nil { // and zero behind the image
		return Failed(fmt.Errorf("give the disk its size of %d bytes: %w", f.size, err))
	}
	if f.o.Preallocate {
		return f.preallocate()
	}
	return nil
}

// resume continues with the part that an earlier run began. It may be smaller if the volume grew meanwhile, and larger if the
// filesystem had more room then or a larger disk was asked for: what it has behind the disk, and so behind the image, is zeroes.
func (f *file) resume(h *os.File, unknown bool) error {
	info, err := h.Stat()
	if err != nil {
		return Failed(fmt.Errorf("look at the disk's first part: %w", err))
	}
	if unknown || info.Size() <= min(f.o.Size, f.limit) { // a disk that is larger than its image may have had more room then
		f.size = max(f.size, info.Size())
	}
	if !info.Mode().IsRegular() {
		return Failed(fmt.Errorf("the part that an earlier run left is no file but %s", info.Mode().Type()))
	}
	if err := h.Truncate(f.size); err != nil {
		return Failed(fmt.Errorf("give the disk its size of %d bytes: %w", f.size, err))
	}
	return nil
}

// clear removes whatever an earlier run, finished or not, left.
func (f *file) clear() error {
	f.park.close()
	// The files of an early guest are of another claim: this one was not used by a guest.
	if err := f.remove("note", "note-new", "parked", "part", "guest", "guest-new", "nbd", "verdict", "verdict-new"); err != nil {
		return err
	}
	if err := os.Remove(f.o.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Failed(fmt.Errorf("remove the disk of an earlier run: %w", err))
	}
	return nil
}

// remove removes files beside the disk.
func (f *file) remove(what ...string) error {
	for _, w := range what {
		if err := os.Remove(f.beside(w)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Failed(fmt.Errorf("remove what is not needed any more: %w", err))
		}
	}
	return nil
}

// preallocate reserves all of the disk's blocks; where the filesystem cannot, they are written.
func (f *file) preallocate() error {
	err := unix.Fallocate(int(f.w.file.Fd()), 0, 0, f.size)
	for errors.Is(err, syscall.EINTR) {
		err = unix.Fallocate(int(f.w.file.Fd()), 0, 0, f.size)
	}
	if err == nil || !errors.Is(err, syscall.EOPNOTSUPP) {
		if err != nil {
			return Failed(fmt.Errorf("reserve the disk's %d bytes: %w", f.size, err))
		}
		return nil
	}
	return f.fill()
}

// fill writes zeroes where no space could be reserved.
func (f *file) fill() error {
	zeroes, buf := make([]byte, bounceSize), make([]byte, bounceSize)
	for off := int64(0); off < f.size; off += bounceSize {
		p := buf[:min(bounceSize, f.size-off)]
		if _, err := f.ReadAt(p, off); err != nil {
			return err
		}
		for at := 0; at < len(p); {
			n, zero := zeropage.Run(p[at:], off+int64(at))
			if zero { // else the image is there already
				if err := f.w.write(zeroes[:n], off+int64(at)); err != nil {
					return err
				}
			}
			at += n
		}
	}
	return nil
}

func (f *file) Size() int64 { return f.size }
func (f *file) Tail() int64 { return f.size }

// Written implements Disk.
func (f *file) Written() int64 {
	if f.w == nil {
		return 0
	}
	return f.w.written.Load()
}

// WriteAt implements Disk.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > f.size {
		return 0, outside(p, off, f.size)
	}
	seen := f.park.reclaimed.Load()
	err := f.w.writePages(p, off)
	for errors.Is(err, syscall.ENOSPC) && f.reclaim(&seen) {
		err = f.w.writePages(p, off)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// outside returns a write beyond the disk: a mistake in this program or a lie in an image, and never carried out.
func outside(p []byte, off, size int64) error {
	return task.Errorf(task.BadImage, "the image puts %d bytes at %d, outside its disk of %d bytes", len(p), off, size)
}

// ReadAt implements Disk.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.w.file.ReadAt(p, off)
	return n, Failed(err)
}

// Again implements Shared.
func (f *file) Again() (*os.File, error) {
	h, err := os.OpenFile(f.beside("part"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, Failed(fmt.Errorf("open the disk for its guest: %w", err))
	}
	return h, nil
}

// Sync implements Disk.
func (f *file) Sync() error {
	if err := f.park.sync(); err != nil {
		return err
	}
	return f.w.sync()
}

// Finish implements Disk. The note goes last: a crash between the two leaves a finished disk and a note that says so.
func (f *file) Finish() error {
	if err := f.w.file.Sync(); err != nil {
		return Failed(fmt.Errorf("fsync the disk: %w", err))
	}
	if err := os.Rename(f.beside("part"), f.o.Path); err != nil {
		return Failed(fmt.Errorf("give the disk its name: %w", err))
	}
	if err := f.syncDir(); err != nil {
		return err
	}
	return f.tidy()
}

// tidy removes what a finished disk does not need. The note goes last.
func (f *file) tidy() error {
	if err := f.remove("parked", "note-new", "note"); err != nil {
		return err
	}
	return f.syncDir()
}

func (f *file) syncDir() error {
	d, err := os.Open(filepath.Dir(f.o.Path))
	if err != nil {
		return Failed(err)
	}
	defer d.Close() // opened for reading
	if err := d.Sync(); err != nil {
		return Failed(fmt.Errorf("fsync the target's directory: %w", err))
	}
	return nil
}

// Discard implements Disk. An earlier disk stays if this run ended before Begin.
func (f *file) Discard() error {
	if f.w == nil {
		return f.remove("note", "note-new", "parked", "part")
	}
	return f.clear()
}

// Close implements Disk.
func (f *file) Close() error {
	f.park.close()
	if f.w != nil {
		return f.w.close()
	}
	return nil
}
