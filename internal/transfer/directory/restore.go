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

	"github.com/berth-vm/berth/internal/transfer/sink"
)

// Attributes are a file's attributes besides its name and contents.
type Attributes struct {
	Mode     uint32 // the twelve bits of permissions
	UID, GID int
	Modified time.Time
	Extended map[string][]byte // those that CarriesAttribute
}

// CarriesAttribute reports whether an extended attribute belongs to a file's contents, as far as its owner can set it: the user's
// own, and access control lists. Others are the node's (labels of SELinux) or give rights (capabilities).
func CarriesAttribute(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// Contents are the bytes of a file: Next fills some of p, or says how many zeroes come next. io.EOF is their end.
type Contents interface {
	Next(p []byte) (n int, zeroes int64, err error)
}

// Copy makes a file of size bytes with these attributes. Zeroes become holes, so that it may be larger than the filesystem.
func (d *Directory) Copy(name string, size int64, from Contents, a Attributes) error {
	c, err := d.entry(name)
	if err != nil {
		return err
	}
	f, err := d.root.OpenFile(c, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return place(name, err)
	}
	err = d.copy(f, size, from)
	if err == nil {
		err = setExtended(f, a.Extended) // while it can be written to
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	return d.restore(name, c, a)
}

func (d *Directory) copy(f *os.File, size int64, from Contents) error {
	if err := f.Truncate(size); err != nil {
		return sink.Failed(err)
	}
	for off := int64(0); ; {
		n, zeroes, err := from.Next(d.buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n > 0 {
			if _, err := f.WriteAt(d.buf[:n], off); err != nil {
				return sink.Failed(err)
			}
			d.written += int64(n)
			if d.dirty += int64(n); d.dirty > sink.DirtyMax {
				d.dirty = 0
				if err := unix.Fdatasync(int(f.Fd())); err != nil {
					return sink.Failed(err)
				}
			}
		}
		off += int64(n) + zeroes
	}
}

// Restore sets the attributes of a directory, after all its files were made.
func (d *Directory) Restore(name string, a Attributes) error {
	c, err := clean(name)
	if err != nil || c == "." { // the top directory of a volume belongs to the pod that mounts it
		return err
	}
	f, err := d.root.OpenFile(c, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return place(name, err)
	}
	if err := errors.Join(setExtended(f, a.Extended), f.Close()); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	return d.restore(name, c, a)
}

// RestoreLink gives a symbolic link its owner, if this process may.
func (d *Directory) RestoreLink(name string, a Attributes) error {
	c, err := clean(name)
	if err != nil {
		return err
	}
	return d.own(name, c, a)
}

// Node makes a named pipe or a socket.
func (d *Directory) Node(name string, kind uint32, a Attributes) error {
	c, err := d.entry(name)
	if err != nil {
		return err
	}
	dir, err := d.root.OpenFile(path.Dir(c), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return place(name, err)
	}
	err = unix.Mknodat(int(dir.Fd()), path.Base(c), kind|0o600, 0)
	if err = errors.Join(err, dir.Close()); err != nil {
		return place(name, &os.PathError{Op: "mknod", Path: c, Err: err})
	}
	return d.restore(name, c, a)
}

// restore sets the owner, then the mode, which another owner would take bits from, then the time.
func (d *Directory) restore(name, c string, a Attributes) error {
	if err := d.own(name, c, a); err != nil {
		return err
	}
	mode := fs.FileMode(a.Mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if a.Mode&bit != 0 {
			mode |= flag
		}
	}
	if err := d.root.Chmod(c, mode); err != nil {
		return place(name, err)
	}
	return place(name, d.root.Chtimes(c, a.Modified, a.Modified))
}

// own sets the owner and the group, or the group alone, or neither: a worker is not root.
func (d *Directory) own(name, c string, a Attributes) error {
	for _, uid := range []int{a.UID, -1} {
		err := d.root.Lchown(c, uid, a.GID)
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EINVAL) {
			return place(name, err)
		}
	}
	return nil
}

// setExtended sets extended attributes, as far as the filesystem has them and this process may set them.
func setExtended(f *os.File, attrs map[string][]byte) error {
	for name, value := range attrs {
		if !CarriesAttribute(name) {
			continue
		}
		err := unix.Fsetxattr(int(f.Fd()), name, value, 0)
		switch {
		case err == nil, errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EINVAL):
		default:
			return sink.Failed(fmt.Errorf("set extended attribute %s: %w", name, err))
		}
	}
	return nil
}
