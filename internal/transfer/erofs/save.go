package erofs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A tree can be kept in a file, so that a layer can be laid over others without converting those again. The file is written and
// read by the same program; a damaged one causes an error.

// treeMagic begins the file, and changes with its form.
const treeMagic = "berth layer tree 1\n"

// maxDepth is how deep directories may be nested in a file of a tree: a path has at most 4096 bytes, and links lead no further.
const maxDepth = 1 << 16

var errTree = errors.New("the file of a tree is damaged")

// Save writes the tree.
func (t *Tree) Save(to io.Writer) error {
	w := &treeWriter{w: bufio.NewWriterSize(to, 64<<10)}
	_, _ = w.w.WriteString(treeMagic)
	w.number(int64(len(t.images)))
	w.number(int64(t.count))
	root := t.root
	if root == nil {
		root = newDir()
	}
	w.node(root)
	return w.w.Flush()
}

// LoadTree reads a tree that Save wrote. The filesystems of its layers are read from images.
func LoadTree(from io.Reader, images []io.ReaderAt) (*Tree, error) {
	r := &treeReader{r: bufio.NewReaderSize(from, 64<<10)}
	magic := make([]byte, len(treeMagic))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != treeMagic {
		return nil, errTree
	}
	if n := r.number(); n != int64(len(images)) {
		return nil, fmt.Errorf("%w: it is of %d layers, and there are %d", errTree, n, len(images))
	}
	r.images = len(images)
	t := &Tree{images: images, count: int(r.number())}
	t.root = r.node(0)
	if r.err == nil && (!t.root.is(typeDir) || t.count < 0) {
		r.err = errTree
	}
	if _, err := r.r.ReadByte(); r.err == nil && !errors.Is(err, io.EOF) {
		r.err = errTree
	}
	return t, r.err
}

type treeWriter struct {
	w    *bufio.Writer // keeps the first error
	text []byte
}

func (w *treeWriter) number(n int64) {
	w.text = binary.AppendVarint(w.text[:0], n)
	_, _ = w.w.Write(w.text)
}

func (w *treeWriter) words(s string) {
	w.number(int64(len(s)))
	_, _ = w.w.WriteString(s)
}

func (w *treeWriter) node(n *node) {
	for _, v := range []int64{int64(n.mode), int64(n.uid), int64(n.gid), n.mtime, int64(n.nsec), int64(n.device), n.size, int64(n.block), int64(n.image)} {
		w.number(v)
	}
	w.words(n.target)
	w.number(int64(len(n.xattrs)))
	for name, value := range n.xattrs {
		w.words(name)
		w.words(value)
	}
	w.number(int64(len(n.children)))
	for name, c := range n.children {
		w.words(name)
		w.node(c)
	}
}

// treeReader keeps the first error; what is read after it is empty.
type treeReader struct {
	r      *bufio.Reader
	images int
	err    error
}

func (r *treeReader) number() int64 {
	if r.err != nil {
		return 0
	}
	n, err := binary.ReadVarint(r.r)
	if err != nil {
		r.err = errTree
		return 0
	}
	return n
}

func (r *treeReader) words() string {
	n := r.number()
	if r.err == nil && (n < 0 || n > maxXattrs+maxPath) {
		r.err = errTree
	}
	if r.err != nil || n == 0 {
		return ""
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r.r, text); err != nil {
		r.err = errTree
	}
	return string(text)
}

func (r *treeReader) node(depth int) *node {
	n := &node{mode: uint16(r.number()), uid: uint32(r.number()), gid: uint32(r.number()), mtime: r.number(), nsec: uint32(r.number()),
		device: uint32(r.number()), size: r.number(), block: uint32(r.number()), image: int(r.number())}
	n.target = r.words()
	if depth > maxDepth || n.size < 0 || n.image < 0 || n.image > 0 && n.image >= r.images {
		r.err = errTree
	}
	for range r.number() {
		name, value := r.words(), r.words()
		if r.err != nil {
			return n
		}
		if n.xattrs == nil {
			n.xattrs = map[string]string{}
		}
		n.xattrs[name] = value
	}
	if n.is(typeDir) {
		n.children = map[string]*node{}
	}
	for range r.number() {
		name := r.words()
		child := r.node(depth + 1)
		if r.err != nil || n.children == nil {
			r.err = errTree
			return n
		}
		n.children[name] = child
	}
	return n
}
