package erofs

import (
	"io"
	"io/fs"
	"maps"
	"slices"
)

// The types of a file's mode, as in stat(2).
const (
	typeMask    = 0o170000
	typeFIFO    = 0o010000
	typeChar    = 0o020000
	typeDir     = 0o040000
	typeBlock   = 0o060000
	typeRegular = 0o100000
	typeLink    = 0o120000
)

// node is a file of a layer. Hard links are one node under several names.
type node struct {
	mode     uint16 // type and permissions
	uid, gid uint32
	mtime    int64
	nsec     uint32
	device   uint32            // of character and block devices, as Linux encodes it
	xattrs   map[string]string // by whole name
	target   string            // of a symbolic link
	size     int64             // of a plain file, or of what a directory or a link is stored as
	block    uint32            // where its data begins in the image
	links    uint32
	also     int              // how many names it has besides its first
	children map[string]*node // of a directory
	image    int              // of a file of the tree: the layer that has its data
	// implied: the layer has files in the directory, but no entry for the directory itself.
	implied bool
	// opaque: what the layers below have in the directory is not seen.
	opaque bool

	// number, inline and stored are for the writer: its place in the table of files, and what of its data is stored behind its entry.
	number uint64
	inline bool
	stored []byte
}

func newDir() *node {
	return &node{mode: typeDir | 0o755, children: map[string]*node{}}
}

func (n *node) is(kind uint16) bool { return n != nil && n.mode&typeMask == kind }

// whiteout returns what overlayfs takes for a file that is gone: the character device 0, 0.
func whiteout() *node { return &node{mode: typeChar} }

func (n *node) isWhiteout() bool { return n.is(typeChar) && n.device == 0 }

// alike returns a file with the same attributes that has no data and no names yet.
func (n *node) alike() *node {
	return &node{mode: n.mode, uid: n.uid, gid: n.gid, mtime: n.mtime, nsec: n.nsec, device: n.device, xattrs: n.xattrs, target: n.target, size: n.size}
}

// names of a directory's files in the order of their bytes.
func (n *node) names() []string { return slices.Sorted(maps.Keys(n.children)) }

// Tree is the merged view of all layers so far: directories and symbolic links decide where the next layer's files lie, and any
// file may get another name there. The zero Tree has no layers.
type Tree struct {
	root   *node
	images []io.ReaderAt // the filesystems of the layers
	count  int           // files that were ever laid into it
}

// child returns the entry of a directory with a name; nil if it is not known.
func (t *Tree) child(dir *node, name string) *node {
	if dir == nil {
		return nil
	}
	return dir.children[name]
}

// add lays a layer over the tree.
func (t *Tree) add(root *node, image io.ReaderAt) {
	t.root = t.lay(t.root, root)
	t.images = append(t.images, image)
}

// lay returns what a directory of a layer makes of the one below it.
func (t *Tree) lay(below, above *node) *node {
	out := &node{mode: above.mode, uid: above.uid, gid: above.gid, mtime: above.mtime, nsec: above.nsec, xattrs: above.xattrs,
		children: map[string]*node{}}
	if below.is(typeDir) && !above.opaque {
		out.children = below.children // it belongs to no one else any more
	}
	for name, n := range above.children {
		switch {
		case n.is(typeDir):
			lower := out.children[name]
			if lower == nil {
				lower = newDir()
			}
			out.children[name] = t.lay(lower, n)
		case n.isWhiteout():
			delete(out.children, name)
		default:
			out.children[name] = n.alike()
			out.children[name].block, out.children[name].image = n.block, len(t.images)
		}
	}
	return out
}

// permissions of a tar header's mode that a file has.
const permissions = uint16(fs.ModePerm) | 0o7000
