package erofs

import (
	"encoding/binary"
	"io"
)

// tableWriter writes the entries of files, which come in the order of their places, in large pieces. The first error stays.
type tableWriter struct {
	to   io.WriterAt
	base int64 // where the table begins
	done int64 // what of it is written
	held []byte
	err  error
}

const tablePiece = 1 << 20

// entry writes a file's entry, its attributes, and what it is stored as.
func (w *tableWriter) entry(m *image, n *node) {
	at := int64(n.number) * slotSize
	w.held = append(w.held, make([]byte, at-w.done-int64(len(w.held)))...)
	format := uint16(formatExtended)
	whole := n.stored
	if n.inline {
		format |= formatInline
		whole = n.stored[:len(n.stored)/blockSize*blockSize]
	}
	if len(whole) > 0 && w.err == nil {
		_, w.err = m.to.WriteAt(whole, int64(n.block)*blockSize)
	}
	le := binary.LittleEndian
	b := make([]byte, entrySize)
	le.PutUint16(b, format)
	if len(n.xattrs) > 0 {
		le.PutUint16(b[2:], uint16(1+(xattrsSize(n.xattrs)-xattrHead)/4))
	}
	le.PutUint16(b[4:], n.mode)
	le.PutUint64(b[8:], uint64(n.size))
	le.PutUint32(b[16:], n.block)
	if n.is(typeChar) || n.is(typeBlock) {
		le.PutUint32(b[16:], n.device)
	}
	le.PutUint32(b[20:], uint32(n.number))
	le.PutUint32(b[24:], n.uid)
	le.PutUint32(b[28:], n.gid)
	le.PutUint64(b[32:], uint64(n.mtime))
	le.PutUint32(b[40:], n.nsec)
	le.PutUint32(b[44:], n.links)
	w.held = append(w.held, b...)
	w.held = appendXattrs(w.held, n.xattrs)
	w.held = append(w.held, n.stored[len(whole):]...)
	if len(w.held) > tablePiece {
		w.flush()
	}
}

func (w *tableWriter) flush() {
	if w.err == nil && len(w.held) > 0 {
		_, w.err = w.to.WriteAt(w.held, w.base+w.done)
	}
	w.done += int64(len(w.held))
	w.held = w.held[:0]
}
