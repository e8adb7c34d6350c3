package filetree

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/directory"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// Source is a directory to be carried elsewhere.
type Source struct {
	Dir string
	// Without names a top-level file that is transferred by other means; "" for none.
	Without string
	// Plain: the stream stays on this machine, so it is not compressed.
	Plain bool
}

// writer is a tree on its way out.
type writer struct {
	Source
	ctx    context.Context
	root   *os.Root
	out    *bufio.Writer
	frames *peerproto.Writer
	buf    []byte
	links  map[fileID]*seen
	names  int // bytes of the names in links
	left   []string
}

type fileID struct{ device, inode uint64 }

// seen is a file with several names.
type seen struct {
	name string
	left uint64 // names that have not come yet
}

// Left lists what was left out of a stream: the names of devices, the first few of them.
type Left []string

// Write writes all files below the directory to w, but for lost+found and what workers themselves keep at the top of a volume.
func Write(ctx context.Context, s Source, w io.Writer) (Left, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, explain(s.Dir, err)
	}
	defer root.Close() // opened for reading
	t := &writer{Source: s, ctx: ctx, root: root, out: bufio.NewWriterSize(w, 64<<10), buf: make([]byte, peerproto.MaxFrame), links: map[fileID]*seen{}}
	t.frames = peerproto.NewPlainWriter(t.out)
	if !s.Plain {
		if t.frames, err = peerproto.NewWriter(t.out); err != nil {
			return nil, err
		}
	}
	if _, err := t.out.WriteString(Magic); err != nil {
		return nil, err
	}
	if err := t.directory(".", 0); err != nil {
		return nil, err
	}
	if _, err := t.out.Write(make([]byte, 4)); err != nil {
		return nil, err
	}
	return t.left, t.out.Flush()
}

// explain gives an error of the source its reason.
func explain(name string, err error) error {
	var known *task.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrPermission):
		return task.Errorf(task.SourceDenied, "read %q of the volume to be cloned: %w; workers run as user and group 107: let these read it", name, err)
	case errors.Is(err, fs.ErrNotExist):
		return task.Errorf(task.SourceChanged, "%q vanished while the volume was cloned: %w", name, err)
	}
	return task.Errorf(task.SourceUnreachable, "read %q of the volume to be cloned: %w", name, err)
}

// directory writes what is in a directory, a few names at a time.
func (t *writer) directory(dir string, depth int) error {
	if depth > depthMost {
		return task.Errorf(task.UnsupportedImage, "directories of the volume are nested more than %d deep", depthMost)
	}
	f, err := t.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return explain(dir, err)
	}
	defer f.Close() // opened for reading
	for {
		entries, err := f.ReadDir(namesAtOnce)
		if err != nil && !errors.Is(err, io.EOF) {
			return explain(dir, err)
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if dir == "." && t.skips(name) {
				continue
			}
			if err := t.entry(name, depth); err != nil {
				return err
			}
		}
		if len(entries) == 0 || err != nil {
			return nil
		}
	}
}

// skips reports whether what is at the top of a volume and is not its content, or not ours to carry.
func (t *writer) skips(name string) bool {
	return directory.IsOurs(name) || name == "lost+found" || name == t.Without
}

func (t *writer) entry(name string, depth int) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	info, err := t.root.Lstat(name)
	if err != nil {
		return explain(name, err)
	}
	h := &header{Name: []byte(name), Mode: modeBits(info.Mode()), Time: info.ModTime().UnixNano()}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		h.UID, h.GID = int(st.Uid), int(st.Gid)
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		if ok && t.sameAs(h, st) {
			return t.header(h)
		}
		return t.file(h, info)
	case mode.IsDir():
		h.Kind = isDir
		if err := t.header(h); err != nil {
			return err
		}
		if err := t.directory(name, depth+1); err != nil {
			return err
		}
		if err := t.attrs(h, unix.O_DIRECTORY); err != nil {
			return err
		}
		h.Kind = isEnd
	case mode&fs.ModeSymlink != 0:
		to, err := t.root.Readlink(name)
		if err != nil {
			return explain(name, err)
		}
		h.Kind, h.To = isLink, []byte(to)
	case mode&fs.ModeNamedPipe != 0:
		h.Kind = isPipe
	case mode&fs.ModeSocket != 0:
		h.Kind = isSocket
	default:
		const few = 3
		if len(t.left) < few {
			t.left = append(t.left, name)
		}
		return nil
	}
	return t.header(h)
}

func (t *writer) header(h *header) error { return writeHeader(t.out, h) }

// sameAs makes h the second name of a file that was written under another. What there is no room to remember becomes a file of its own.
func (t *writer) sameAs(h *header, st *syscall.Stat_t) bool {
	if st.Nlink < 2 {
		return false
	}
	id := fileID{uint64(st.Dev), st.Ino}
	first := t.links[id]
	if first == nil {
		if len(t.links) < linksMost && t.names+len(h.Name) <= nameBytesMost {
			t.links[id] = &seen{string(h.Name), uint64(st.Nlink) - 1}
			t.names += len(h.Name)
		}
		return false
	}
	h.Kind, h.To = isSame, []byte(first.name)
	if first.left--; first.left == 0 {
		t.names -= len(first.name)
		delete(t.links, id)
	}
	return true
}

// file writes a file: only what is still the one that was looked at, and did not change meanwhile.
func (t *writer) file(h *header, was fs.FileInfo) error {
	name := string(h.Name)
	f, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return explain(name, err)
	}
	defer f.Close() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return explain(name, err)
	}
	if !os.SameFile(info, was) {
		return changed(name)
	}
	h.Kind, h.Size = isFile, info.Size()
	if h.Attrs, err = extended(f); err != nil {
		return explain(name, err)
	}
	if err := t.header(h); err != nil {
		return err
	}
	if err := t.contents(f, h.Size); err != nil {
		return err
	}
	after, err := f.Stat()
	if err != nil {
		return explain(name, err)
	}
	if after.Size() != info.Size() || !after.ModTime().Equal(info.ModTime()) {
		return changed(name)
	}
	return nil
}

func changed(name string) error {
	return task.Errorf(task.SourceChanged, "%q changed while the volume was cloned", name)
}

// window bounds the list of extents of a file that is in memory.
const window = 64 << 20

// contents writes the bytes of a file. Holes are not even read.
func (t *writer) contents(f *os.File, size int64) error {
	for at := int64(0); at < size; {
		end := min(size, at+window)
		data, err := sink.DataIn(t.ctx, f, at, end)
		if err != nil {
			return err
		}
		for _, d := range append(data, [2]int64{end, 0}) {
			if err := t.frames.Zeroes(d[0] - at); err != nil {
				return err
			}
			at = d[0]
			for end := d[0] + d[1]; at < end; {
				p := t.buf[:min(int64(len(t.buf)), end-at)]
				if _, err := f.ReadAt(p, at); err != nil {
					if errors.Is(err, io.EOF) {
						return changed(f.Name())
					}
					return explain(f.Name(), err)
				}
				if _, err := t.frames.Write(p); err != nil {
					return err
				}
				at += int64(len(p))
			}
		}
	}
	return nil
}

// attrs adds the extended attributes of a directory.
func (t *writer) attrs(h *header, flag int) error {
	f, err := t.root.OpenFile(string(h.Name), os.O_RDONLY|unix.O_NOFOLLOW|flag, 0)
	if err != nil {
		return explain(string(h.Name), err)
	}
	defer f.Close() // opened for reading
	if h.Attrs, err = extended(f); err != nil {
		return explain(string(h.Name), err)
	}
	return nil
}

// extended returns the extended attributes of a file that its owner may set: user attributes and access control lists.
func extended(f *os.File) (map[string][]byte, error) {
	fd := int(f.Fd())
	list := make([]byte, attrsMost)
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list extended attributes: %w", err)
	}
	attrs, total := map[string][]byte{}, 0
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !directory.CarriesAttribute(name) {
			continue
		}
		value := make([]byte, attrsMost)
		m, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, syscall.ENODATA) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read extended attribute %s: %w", name, err)
		}
		if total += m; total > attrsMost {
			return nil, fmt.Errorf("its extended attributes have more than %d bytes", attrsMost)
		}
		attrs[name] = value[:m:m]
	}
	return attrs, nil
}
