// Package directory writes the files of an archive or of another volume into a directory. Names and links are untrusted: no file is
// made or followed outside of the directory, whatever links are inside. It does not know where the files come from.
package directory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// unpackingName marks a directory that is not complete.
const unpackingName = ".berth-unpacking"

// Directory is a target for files. Their names are untrusted: no file is ever made or followed outside of the directory, whatever
// links are inside. Only one goroutine may use it.
type Directory struct {
	root    *os.Root
	path    string
	space   int64 // bytes that may still be written
	files   int64 // entries that may still be made
	written int64
	dirty   int64 // of it, since it was made durable last
	buf     []byte
}

// Open opens the directory at path and marks it as incomplete. It deletes the files that keep rejects first, because the
// files of an earlier attempt are not part of this one and take space. nil keeps all.
func Open(name string, keep func(name string) bool) (*Directory, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, sink.Failed(fmt.Errorf("open the target directory: %w", err))
	}
	d := &Directory{root: root, path: name, buf: make([]byte, 256<<10)}
	if err := d.prepare(keep); err != nil {
		_ = root.Close()
		return nil, err
	}
	return d, nil
}

func (d *Directory) prepare(keep func(name string) bool) error {
	if err := d.mark(); err != nil {
		return err
	}
	if keep != nil {
		if err := d.empty(keep); err != nil {
			return err
		}
	}
	var s unix.Statfs_t
	if err := unix.Statfs(d.path, &s); err != nil {
		return sink.Failed(fmt.Errorf("measure the target's filesystem: %w", err))
	}
	d.space, d.files = int64(s.Bavail)*s.Bsize, int64(s.Ffree)
	if s.Files == 0 {
		d.files = 1 << 40 // a filesystem that makes inodes as it goes
	}
	return nil
}

// mark marks the directory as incomplete.
func (d *Directory) mark() error {
	f, err := d.root.OpenFile(unpackingName, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return sink.Failed(fmt.Errorf("mark the target directory as incomplete: %w", err))
	}
	return sink.Failed(f.Close())
}

// Written counts the bytes of files written.
func (d *Directory) Written() int64 { return d.written }

// clean turns a name from an archive into one below the directory, "." for the directory itself.
func clean(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", unsafe("%q has a zero byte in its name", name)
	}
	c := path.Clean(strings.TrimLeft(name, "/"))
	if c == ".." || strings.HasPrefix(c, "../") {
		return "", unsafe("%q lies outside of the target directory", name)
	}
	if c == unpackingName {
		return "", unsafe("%q is a name this program uses", name)
	}
	return c, nil
}

func unsafe(format string, args ...any) error {
	return task.Errorf(task.UnsafeImage, "the archive's entry "+format, args...)
}

// place returns why an entry could not be made: an escape through a link is the archive's doing, the rest the target's.
func place(name string, err error) error {
	var e *os.PathError
	var l *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS):
		return sink.Failed(fmt.Errorf("unpack %q: %w", name, err))
	case errors.As(err, &e), errors.As(err, &l):
		return unsafe("%q cannot be made inside the target directory: %w", name, err)
	}
	return sink.Failed(fmt.Errorf("unpack %q: %w", name, err))
}

// entry prepares the path of a name: its parents exist afterwards, and the name itself is free or a directory.
func (d *Directory) entry(name string) (string, error) {
	c, err := clean(name)
	if err != nil {
		return "", err
	}
	if d.files--; d.files < 0 {
		return "", &task.Error{Reason: task.DoesNotFit, Err: errors.New("the archive has more entries than the filesystem can take")}
	}
	if dir := path.Dir(c); dir != "." {
		if err := d.root.MkdirAll(dir, 0o755); err != nil {
			return "", place(name, err)
		}
	}
	if c == "." {
		return c, nil
	}
	info, err := d.root.Lstat(c)
	if err == nil && !info.IsDir() {
		err = d.root.Remove(c)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", place(name, err)
	}
	return c, nil
}

// Mkdir makes a directory. Its owner can always write to it, or the archive's next entries could not be made.
func (d *Directory) Mkdir(name string, mode fs.FileMode) error {
	c, err := d.entry(name)
	if err != nil || c == "." {
		return err
	}
	return place(name, d.root.MkdirAll(c, mode.Perm()|0o700))
}

// Symlink makes a symbolic link. It may point anywhere: nothing here follows it.
func (d *Directory) Symlink(name, target string) error {
	c, err := d.entry(name)
	if err != nil {
		return err
	}
	return place(name, d.root.Symlink(target, c))
}

// Link makes another name for a file that was unpacked before.
func (d *Directory) Link(name, old string) error {
	o, err := clean(old)
	if err != nil {
		return err
	}
	c, err := d.entry(name)
	if err != nil {
		return err
	}
	info, err := d.root.Lstat(o)
	if err == nil && !info.Mode().IsRegular() {
		return unsafe("%q is another name for %q, which is no file", name, old)
	}
	if err != nil {
		return place(name, err)
	}
	return place(name, d.root.Link(o, c))
}

// File makes a file of size bytes from r. Pages of zeroes become holes.
func (d *Directory) File(name string, mode fs.FileMode, modified time.Time, size int64, r io.Reader) error {
	if size > d.space {
		return task.Errorf(task.DoesNotFit, "the archive's entry %q has %d bytes, and the filesystem has room for %d; ask for a larger volume", name, size, d.space)
	}
	d.space -= size
	c, err := d.entry(name)
	if err != nil {
		return err
	}
	f, err := d.root.OpenFile(c, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm()|0o600)
	if err != nil {
		return place(name, err)
	}
	err = d.fill(f, size, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	if !modified.IsZero() {
		return place(name, d.root.Chtimes(c, modified, modified))
	}
	return nil
}

// fill copies size bytes, leaving out pages of zeroes.
func (d *Directory) fill(f *os.File, size int64, r io.Reader) error {
	if err := f.Truncate(size); err != nil {
		return sink.Failed(err)
	}
	for off := int64(0); off < size; {
		p := d.buf[:min(int64(len(d.buf)), size-off)]
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		for len(p) > 0 {
			n, zero := zeropage.Run(p, off)
			if !zero {
				if _, err := f.WriteAt(p[:n], off); err != nil {
					return sink.Failed(err)
				}
				d.written += int64(n)
			}
			p, off = p[n:], off+int64(n)
		}
	}
	return nil
}

// Finish makes all files durable and removes the mark.
func (d *Directory) Finish() error {
	if err := d.sync(); err != nil {
		return err
	}
	if err := d.root.Remove(unpackingName); err != nil {
		return sink.Failed(fmt.Errorf("mark the target directory as complete: %w", err))
	}
	return d.sync()
}

func (d *Directory) sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return sink.Failed(err)
	}
	defer f.Close() // opened for reading
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return sink.Failed(fmt.Errorf("sync the target's filesystem: %w", err))
	}
	return nil
}

// Close closes the directory.
func (d *Directory) Close() error { return d.root.Close() }

// IsOurs reports whether a name at the top of a volume is reserved for files of Berth.
func IsOurs(name string) bool {
	return name == unpackingName || strings.HasPrefix(name, ".") && strings.Contains(name, ".berth-")
}
