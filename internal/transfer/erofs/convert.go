// Package erofs makes a read-only filesystem of a layer of a container image: an EROFS image that overlayfs stacks over those of
// the layers below. It needs no privilege, no mount and no program; nothing of an archive becomes a file of this machine.
//
// A layer is an untrusted archive. Everything in it is bounded, no path leads out of the filesystem, and symbolic links are
// followed inside it alone, as container runtimes do. The same layer over the same layers gives the same bytes.
//
// It does not know registries, disks or machines.
package erofs

import (
	"archive/tar"
	"errors"
	"io"
	"math"
	"path"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// Limits bound what a layer may be.
type Limits struct {
	Entries int   // files, with the directories they imply
	Bytes   int64 // of the filesystem
	All     int   // files of all layers together
	Steps   int   // entries of the archive, and the names on the paths that they lead through: the time that a layer may cost
}

// File is the file that a filesystem is written to. It is read when a later layer gives one of its files another name.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// DefaultLimits are far above what images have: the largest in public registries have some 300,000 files. A file takes some 300 bytes
// of memory while its layer is converted, and some 200 until the last one is. A path of an image has ten names or so, and leads through a link or two:
// 40 steps for each file. A step takes some 100 ns.
var DefaultLimits = Limits{Entries: 500_000, Bytes: 64 << 30, All: 2_000_000, Steps: 40 * 500_000}

// Bounds of one file, as Linux has them, and of all names, targets and attributes of a layer together.
const (
	maxName   = 255
	maxPath   = 4096
	maxXattrs = 60 << 10
	maxText   = 128 << 20
	maxHops   = 40 // symbolic links that one path leads through
	maxLinks  = 65_000
)

// The names by which a layer takes away what is below it.
const (
	gonePrefix = ".wh."
	opaqueName = ".wh..wh..opq"
	auxPrefix  = ".wh..wh." // notes of a filesystem of old that no runtime looks at
)

// Made is the result of converting a layer.
type Made struct {
	Size int64 // of the filesystem
	// Alone: the layer hides all layers below it, which overlayfs does not support at the root.
	Alone bool
}

// Convert writes the filesystem of a layer, whose decompressed archive r is, and lays it over the tree of those below. The
// archive is read to its end, so that a caller that computes its digest has seen all of it. The tree reads the file until the
// last layer is converted.
func Convert(r io.Reader, to File, below *Tree, l Limits) (Made, error) {
	if below.root == nil {
		below.root = newDir()
	}
	b := &builder{image: newImage(to, l.Bytes), root: newDir(), below: below, limits: l, up: map[named]bool{}}
	b.root.implied = true
	inherit(b.root, below.root)
	if err := b.read(r); err != nil {
		return Made{}, err
	}
	alone := b.root.opaque
	tidy(b.root, below.root)
	below.add(b.root, to)
	mark(b.root)
	size, err := b.image.finish(b.root)
	return Made{Size: size, Alone: alone}, err
}

// builder puts the tree of one layer together.
type builder struct {
	image  *image
	root   *node
	below  *Tree
	limits Limits
	count  int
	steps  int
	text   int
	up     map[named]bool // under which a file of the layers below was copied
}

func (b *builder) read(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return broken(err)
		}
		if err := b.entry(h, t); err != nil {
			return err
		}
	}
}

// broken returns the error for an invalid archive. An error with a reason comes from the reader below and is returned as it is.
func broken(err error) error {
	var known *task.Error
	if errors.As(err, &known) {
		return err
	}
	return task.Errorf(task.BadImage, "it is no valid tar archive: %w", err)
}

// entry takes one file of the archive.
func (b *builder) entry(h *tar.Header, content io.Reader) error {
	if err := b.walk(1); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if len(h.Name) > maxPath || len(h.Linkname) > maxPath {
		return task.Errorf(task.BadImage, "a file's path is longer than %d bytes: %.60q", maxPath, h.Name)
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	dir, base := path.Split(name)
	switch {
	case len(base) > maxName || strings.ContainsRune(name, 0):
		return task.Errorf(task.BadImage, "a file's name is longer than %d bytes, or has a zero in it: %.60q", maxName, base)
	case base == opaqueName:
		return b.hide(dir)
	case strings.HasPrefix(base, auxPrefix):
		return nil
	case strings.HasPrefix(base, gonePrefix) && base != gonePrefix:
		return b.takeAway(dir, strings.TrimPrefix(base, gonePrefix))
	case h.Typeflag == tar.TypeLink:
		return b.hardLink(h, dir, base)
	}
	n, err := b.node(h)
	if err != nil {
		return err
	}
	if n.is(typeRegular) {
		if err := b.image.data(n, content); err != nil {
			return broken(err)
		}
	}
	return b.put(dir, base, n)
}

// node returns the file that a header describes.
func (b *builder) node(h *tar.Header) (*node, error) {
	kinds := map[byte]uint16{tar.TypeReg: typeRegular, tar.TypeRegA: typeRegular, tar.TypeGNUSparse: typeRegular, tar.TypeCont: typeRegular, //nolint:staticcheck // old archives have it
		tar.TypeDir: typeDir, tar.TypeSymlink: typeLink, tar.TypeChar: typeChar, tar.TypeBlock: typeBlock, tar.TypeFifo: typeFIFO}
	kind, known := kinds[h.Typeflag]
	if !known {
		return nil, task.Errorf(task.UnsupportedImage, "%.200q is of the unknown tar type %q", h.Name, h.Typeflag)
	}
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > math.MaxUint32 || int64(h.Gid) > math.MaxUint32 || h.Size < 0 {
		return nil, task.Errorf(task.BadImage, "%.200q has the owner %d:%d and %d bytes", h.Name, h.Uid, h.Gid, h.Size)
	}
	n := &node{mode: kind | uint16(h.Mode)&permissions, uid: uint32(h.Uid), gid: uint32(h.Gid)}
	if !h.ModTime.IsZero() {
		n.mtime, n.nsec = h.ModTime.Unix(), uint32(h.ModTime.Nanosecond())
	}
	switch kind {
	case typeRegular:
		n.size = h.Size
	case typeDir:
		n.children = map[string]*node{}
	case typeLink:
		if n.target = h.Linkname; n.target == "" || len(n.target) >= maxPath {
			return nil, task.Errorf(task.BadImage, "%.200q is a symbolic link to %d bytes", h.Name, len(n.target))
		}
	case typeChar, typeBlock:
		if h.Devmajor < 0 || h.Devmajor >= 1<<12 || h.Devminor < 0 || h.Devminor >= 1<<20 {
			return nil, task.Errorf(task.BadImage, "%.200q is the device %d, %d, which Linux does not have", h.Name, h.Devmajor, h.Devminor)
		}
		major, minor := uint32(h.Devmajor), uint32(h.Devminor)
		n.device = minor&0xff | major<<8 | minor&^0xff<<12
	}
	return n, b.xattrs(h, n)
}

// xattrs returns the file's extended attributes, without those that overlayfs itself interprets.
func (b *builder) xattrs(h *tar.Header, n *node) error {
	const prefix = "SCHILY.xattr."
	size := 0
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		kind, rest := xattrKind(name)
		if kind == 0 {
			continue // no filesystem but the one that it came from knows what it means
		}
		size += pad4(xattrEntry + len(rest) + len(value))
		if len(rest) > maxName || strings.ContainsRune(name, 0) || size > maxXattrs {
			return task.Errorf(task.BadImage, "%.200q has extended attributes of more than %d bytes", h.Name, maxXattrs)
		}
		if n.xattrs == nil {
			n.xattrs = map[string]string{}
		}
		n.xattrs[name] = value
	}
	return b.words(size + len(n.target))
}

// words counts the memory for names, targets and attributes.
func (b *builder) words(n int) error {
	if b.text += n; b.text > maxText {
		return task.Errorf(task.BadImage, "the names and attributes of its files have more than %d bytes", maxText)
	}
	return nil
}

// walk counts steps. An archive can repeat an entry as often as it likes, and a short path can lead through long links: neither makes a file that is counted.
func (b *builder) walk(steps int) error {
	if b.steps += steps; b.steps > b.limits.Steps {
		return task.Errorf(task.BadImage, "its paths lead through more than %d names", b.limits.Steps)
	}
	return nil
}

// one counts a file.
func (b *builder) one(name string) error {
	if b.count++; b.count > b.limits.Entries {
		return task.Errorf(task.BadImage, "it has more than %d files", b.limits.Entries)
	}
	if b.below.count++; b.below.count > b.limits.All {
		return task.Errorf(task.BadImage, "its layers have more than %d files", b.limits.All)
	}
	return b.words(len(name))
}
