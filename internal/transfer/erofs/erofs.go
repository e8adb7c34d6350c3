package erofs

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// EROFS, as fs/erofs/erofs_fs.h of Linux has it, without compression: a superblock, the data of plain files in whole blocks, and then
// a table of files. A file's entry may be followed by its extended attributes and by the last part of its data. All numbers are
// little-endian.
const (
	blockSize  = 4096
	superAt    = 1024
	superMagic = 0xE0F5E1E2
	entrySize  = 64 // of an "extended" entry
	slotSize   = 32 // the number of a file counts these
	direntSize = 12

	formatExtended = 1
	formatInline   = 2 << 1
)

// maxBlocks: block numbers have 32 bits, the largest is the sign for none.
const maxBlocks = 1<<32 - 1

// xattrKinds are the namespaces of extended attributes that the format has numbers for. The first that fits is taken.
var xattrKinds = []struct {
	prefix string
	index  byte
}{
	{"user.", 1}, {"system.posix_acl_access", 2}, {"system.posix_acl_default", 3}, {"trusted.", 4}, {"security.", 6},
}

// image writes a filesystem: data as it comes, all metadata at the end.
type image struct {
	to    io.WriterAt
	next  int64 // the next free block
	limit int64 // how many bytes the image may have
}

func newImage(to io.WriterAt, limit int64) *image { return &image{to: to, next: 1, limit: limit} }

func (m *image) room(n int64) error {
	if n > m.limit || m.next > maxBlocks-blocks(n) || m.next*blockSize+n > m.limit {
		return task.Errorf(task.BadImage, "it has more than %d bytes", m.limit)
	}
	return nil
}

func blocks(n int64) int64 { return (n + blockSize - 1) / blockSize }

// data takes the content of a plain file.
func (m *image) data(n *node, r io.Reader) error {
	if n.size == 0 {
		return nil
	}
	if err := m.room(n.size); err != nil {
		return err
	}
	n.block = uint32(m.next)
	got, err := io.CopyBuffer(io.NewOffsetWriter(m.to, m.next*blockSize), io.LimitReader(onlyReader{r}, n.size), make([]byte, 256<<10))
	if m.next += blocks(n.size); err == nil && got != n.size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// onlyReader hides what else a reader can do, so that the buffer is used.
type onlyReader struct{ io.Reader }

// finish writes the table of files and says how many bytes the image has.
func (m *image) finish(root *node) (int64, error) {
	all := list(root)
	t := &table{at: slotSize * 2} // the root has no number 0, which some programs take for none
	for _, n := range all {
		if err := m.place(t, n); err != nil {
			return 0, err
		}
	}
	// Directories hold numbers of files, so their content is made when every file has its own.
	parents := map[*node]*node{root: root}
	for _, n := range all {
		for _, c := range n.children {
			if c.is(typeDir) {
				parents[c] = n
			}
		}
	}
	for _, n := range all {
		if n.is(typeDir) {
			n.stored = dirents(n, parents[n])
		}
	}
	start := m.next
	size := start*blockSize + t.at
	if err := m.room(t.at); err != nil {
		return 0, err
	}
	w := &tableWriter{to: m.to, base: start * blockSize}
	for _, n := range all {
		w.entry(m, n)
	}
	w.flush()
	size = blocks(size) * blockSize
	if err := errors.Join(w.err, m.super(root, len(all), start, size)); err != nil {
		return 0, err
	}
	return size, nil
}

// list returns every file once, a directory before its content, in an order that depends only on the names.
func list(root *node) []*node {
	all, seen := []*node{root}, map[*node]bool{root: true}
	root.links = 2
	for i := 0; i < len(all); i++ {
		for _, name := range all[i].names() {
			c := all[i].children[name]
			c.links++
			if seen[c] {
				continue
			}
			seen[c] = true
			if c.is(typeDir) {
				c.links = 2
				all[i].links++
			}
			all = append(all, c)
		}
	}
	return all
}

// table is the position of the next file's entry.
type table struct{ at int64 }

// place gives a file its number, and blocks to what it is stored as if that does not fit behind its entry.
func (m *image) place(t *table, n *node) error {
	switch {
	case n.is(typeDir):
		n.size = direntsSize(n)
	case n.is(typeLink):
		n.stored, n.size = []byte(n.target), int64(len(n.target))
	}
	own := int64(entrySize + xattrsSize(n.xattrs))
	tail := int64(0)
	if n.is(typeDir) || n.is(typeLink) {
		if tail = n.size % blockSize; own+tail > blockSize || tail == 0 {
			tail = 0
		}
		n.inline = tail > 0
		if whole := blocks(n.size - tail); whole > 0 {
			if err := m.room(n.size); err != nil {
				return err
			}
			n.block = uint32(m.next)
			m.next += whole
		}
	}
	for (t.at+own)%blockSize+tail > blockSize { // the tail must be in one block
		t.at += entrySize
	}
	n.number = uint64(t.at / slotSize)
	t.at += own + tail
	t.at += (entrySize - t.at%entrySize) % entrySize
	return nil
}

// direntsSize returns the size of a directory's content.
func direntsSize(n *node) int64 {
	size, used := int64(0), 0
	for _, name := range dirNames(n) {
		if used+direntSize+len(name) > blockSize {
			size, used = size+blockSize, 0
		}
		used += direntSize + len(name)
	}
	return size + int64(used)
}

// dirNames returns the names in a directory with its own and its parent's, in the order of their bytes, in which they are looked
// for.
func dirNames(n *node) []string {
	names := append(n.names(), ".", "..")
	slices.Sort(names)
	return names
}

// dirents returns a directory's content: in each block the entries, and behind them their names.
func dirents(n, parent *node) []byte {
	names := dirNames(n)
	out := make([]byte, 0, n.size)
	for len(names) > 0 {
		count, used := 0, 0
		for count < len(names) && used+direntSize+len(names[count]) <= blockSize {
			used += direntSize + len(names[count])
			count++
		}
		nameAt := count * direntSize
		for _, name := range names[:count] {
			of := n.children[name]
			switch name {
			case ".":
				of = n
			case "..":
				of = parent
			}
			out = binary.LittleEndian.AppendUint64(out, of.number)
			out = binary.LittleEndian.AppendUint16(out, uint16(nameAt))
			out = append(out, direntType(of), 0)
			nameAt += len(name)
		}
		for _, name := range names[:count] {
			out = append(out, name...)
		}
		if names = names[count:]; len(names) > 0 {
			out = append(out, make([]byte, blockSize-used)...)
		}
	}
	return out
}

func direntType(n *node) byte {
	return map[uint16]byte{typeRegular: 1, typeDir: 2, typeChar: 3, typeBlock: 4, typeFIFO: 5, typeLink: 7}[n.mode&typeMask]
}

// xattrHead is the length of the header of a file's extended attributes, xattrEntry that of each attribute.
const (
	xattrHead  = 12
	xattrEntry = 4
)

func xattrsSize(all map[string]string) int {
	if len(all) == 0 {
		return 0
	}
	size := xattrHead
	for name, value := range all {
		_, rest := xattrKind(name)
		size += pad4(xattrEntry + len(rest) + len(value))
	}
	return size
}

func pad4(n int) int { return (n + 3) &^ 3 }

// xattrKind returns the number of an attribute's namespace, 0 for none, and the name in it.
func xattrKind(name string) (index byte, rest string) {
	for _, k := range xattrKinds {
		if after, ok := strings.CutPrefix(name, k.prefix); ok {
			return k.index, after
		}
	}
	return 0, name
}

func appendXattrs(out []byte, all map[string]string) []byte {
	if len(all) == 0 {
		return out
	}
	out = append(out, make([]byte, xattrHead)...)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		index, rest := xattrKind(name)
		value := all[name]
		out = append(out, byte(len(rest)), index)
		out = binary.LittleEndian.AppendUint16(out, uint16(len(value)))
		out = append(append(out, rest...), value...)
		for n := xattrEntry + len(rest) + len(value); n%4 != 0; n++ {
			out = append(out, 0)
		}
	}
	return out
}

// super writes the superblock. There is no time and no random number in it: the same layer gives the same bytes.
func (m *image) super(root *node, files int, table, size int64) error {
	b := make([]byte, 128)
	le := binary.LittleEndian
	le.PutUint32(b, superMagic)
	b[12] = 12 // blocks of 1<<12 bytes
	le.PutUint16(b[14:], uint16(root.number))
	le.PutUint64(b[16:], uint64(files))
	le.PutUint32(b[36:], uint32(size/blockSize))
	le.PutUint32(b[40:], uint32(table))
	_, err := m.to.WriteAt(b, superAt)
	return err
}
