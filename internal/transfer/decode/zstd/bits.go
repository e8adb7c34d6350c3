package zstd

import (
	"encoding/binary"
	"math/bits"
)

// backward reads a bit stream from its end to its beginning. It is used through copies of its fields in local variables
// where speed matters.
type backward struct {
	src   []byte
	ptr   int    // where the 8 bytes in word begin
	word  uint64 // src[ptr:ptr+8]
	used  uint   // how many of its highest bits are spent
	start int    // of the stream in src
}

// open begins at the end of src[start:end]. src has at least 8 bytes before start.
func (b *backward) open(src []byte, start, end int) bool {
	if end <= start || src[end-1] == 0 || end < 8 {
		return false
	}
	b.src, b.start, b.ptr = src, start, end-8
	b.word = binary.LittleEndian.Uint64(src[b.ptr:])
	b.used = uint(8 - bits.Len8(src[end-1]) + 1) // the highest bit that is set marks the end
	return true
}

// read takes n bits, at most 56-7.
func (b *backward) read(n uint) uint64 {
	v := b.word << (b.used & 63) >> 1 >> (63 - n&63)
	b.used += n
	return v
}

// reload makes at least 57 bits readable. It is false if the stream is overdrawn by more than is in the buffer.
func (b *backward) reload() bool {
	b.ptr -= int(b.used >> 3)
	b.used &= 7
	if b.ptr < 0 {
		return false
	}
	b.word = binary.LittleEndian.Uint64(b.src[b.ptr:])
	return true
}

// left is how many bits are left; negative if more were read than there are.
func (b *backward) left() int { return (b.ptr+8-b.start)*8 - int(b.used) }

// forward reads a bit stream from its beginning.
type forward struct {
	src []byte
	pos uint // in bits
}

// peek is the next n bits, at most 25, with zeroes behind the end.
func (f *forward) peek(n uint) uint {
	var v uint64
	at := int(f.pos >> 3)
	for i := range 4 {
		if at+i < len(f.src) {
			v |= uint64(f.src[at+i]) << (8 * i)
		}
	}
	return uint(v>>(f.pos&7)) & (1<<n - 1)
}

// size is how many bytes were begun; false if that is more than there are.
func (f *forward) size() (int, bool) {
	n := int(f.pos+7) >> 3
	return n, n <= len(f.src)
}
