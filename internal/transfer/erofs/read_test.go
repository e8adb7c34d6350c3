package erofs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// memory is a file that is not there.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(m.b).ReadAt(p, off) }

// reader reads a filesystem as the kernel's erofs does, and is as strict.
type reader struct {
	b     []byte
	table int64
	seen  map[string]string
}

// readBack is every file of an image with what there is to know about it.
func readBack(b []byte, size int64) (out map[string]string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	b = append(b, make([]byte, max(0, size-int64(len(b))))...)
	le := binary.LittleEndian
	super := b[superAt:]
	if le.Uint32(super) != superMagic || int64(le.Uint32(super[36:]))*blockSize != size {
		return nil, fmt.Errorf("the superblock is not one of %d bytes", size)
	}
	r := &reader{b: b[:size], table: int64(le.Uint32(super[40:])) * blockSize, seen: map[string]string{}}
	root := uint64(le.Uint16(super[14:]))
	r.walk("", root, root, 0)
	return r.seen, nil
}

func (r *reader) walk(path string, number, parent uint64, depth int) {
	le := binary.LittleEndian
	at := r.table + int64(number)*slotSize
	e := r.b[at : at+entrySize]
	format, xattrs := le.Uint16(e), le.Uint16(e[2:])
	n := node{mode: le.Uint16(e[4:])}
	size := int64(le.Uint64(e[8:]))
	tail := at + entrySize
	text := fmt.Sprintf("%o %d:%d %d links=%d", n.mode, le.Uint32(e[24:]), le.Uint32(e[28:]), int64(le.Uint64(e[32:])), le.Uint32(e[44:]))
	if xattrs > 0 {
		length := int64(xattrHead) + 4*int64(xattrs-1)
		text += r.xattrs(r.b[tail+xattrHead : tail+length])
		tail += length
	}
	var data []byte
	if !n.is(typeChar) && !n.is(typeBlock) {
		data = r.data(format, int64(le.Uint32(e[16:]))*blockSize, tail, size)
	}
	switch {
	case n.is(typeDir):
		r.dir(path, data, number, parent, depth)
	case n.is(typeLink):
		text += " to " + string(data)
	case n.is(typeRegular):
		text += fmt.Sprintf(" %q", shorten(data))
	case n.is(typeChar), n.is(typeBlock):
		text += fmt.Sprintf(" device %#x", le.Uint32(e[16:]))
	}
	if path == "" {
		path = "."
	}
	r.seen[path] = text
}

func shorten(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%s... of %d", b[:40], len(b))
	}
	return string(b)
}

// data returns a file's content: whole blocks, and maybe a tail behind its entry, which must not go over a block's end.
func (r *reader) data(format uint16, start, tail, size int64) []byte {
	if format&formatInline == 0 {
		return r.b[start : start+size]
	}
	whole := size / blockSize * blockSize
	rest := size - whole
	if tail%blockSize+rest > blockSize {
		panic("a tail goes over the end of a block")
	}
	return append(slices.Clone(r.b[start:start+whole]), r.b[tail:tail+rest]...)
}

func (r *reader) xattrs(b []byte) string {
	text := ""
	for len(b) > 0 {
		name, kind, value := int(b[0]), b[1], int(binary.LittleEndian.Uint16(b[2:]))
		text += fmt.Sprintf(" %d.%s=%s", kind, b[4:4+name], shorten(b[4+name:4+name+value]))
		b = b[pad4(4+name+value):]
	}
	return text
}

// dir reads a directory's blocks: their names are in order, and it knows itself and its parent.
func (r *reader) dir(path string, data []byte, number, parent uint64, depth int) {
	le := binary.LittleEndian
	last, dots := "", 0
	for len(data) > 0 {
		b := data[:min(len(data), blockSize)]
		data = data[len(b):]
		count := int(le.Uint16(b[8:])) / direntSize
		for i := range count {
			d := b[i*direntSize:]
			end := len(b)
			if i+1 < count {
				end = int(le.Uint16(d[direntSize+8:]))
			}
			name := strings.TrimRight(string(b[le.Uint16(d[8:]):end]), "\x00")
			if name <= last || strings.Contains(name, "/") || len(name) > maxName {
				panic(fmt.Sprintf("%q comes after %q in %q", name, last, path))
			}
			last = name
			to := le.Uint64(d)
			if name == "." || name == ".." {
				if dots++; name == "." && to != number || name == ".." && to != parent {
					panic(fmt.Sprintf("%q of %q leads elsewhere", name, path))
				}
				continue
			}
			r.walk(strings.TrimPrefix(path+"/"+name, "/"), to, number, depth+1)
		}
	}
	if dots != 2 {
		panic(fmt.Sprintf("%q does not know itself and its parent", path))
	}
}
