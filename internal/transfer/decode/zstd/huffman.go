package zstd

import (
	"encoding/binary"
	"math/bits"
)

const maxHuffman = 11 // bits of the longest code

// huffman is the table of a block's literals: for the next bits, the byte and in bits 8-11 how many of them it takes.
type huffman struct {
	bits    uint
	entries [1 << maxHuffman]uint16
}

var weightCodes = func() (c []code) {
	for i := range 256 {
		c = append(c, code{uint32(i), 0})
	}
	return c
}()

// read reads the description of a table and says how long it is.
func (h *huffman) read(d *Decoder, at, end int) (int, error) {
	if at >= end {
		return 0, BadHuffman
	}
	head := int(d.src[at])
	at++
	var weights [256]uint8
	var n, size int
	if head >= 128 {
		n = head - 127
		size = (n + 1) / 2
		if at+size > end {
			return 0, BadHuffman
		}
		for i := range n {
			weights[i] = d.src[at+i/2] >> (4 * (1 - i&1)) & 15
		}
	} else {
		size = head
		if at+size > end {
			return 0, BadHuffman
		}
		if n = codedWeights(d.src[:], at, at+size, &weights); n == 0 {
			return 0, BadHuffman
		}
	}
	if !h.fill(&weights, n) {
		return 0, BadHuffman
	}
	return size + 1, nil
}

// codedWeights reads weights that are themselves coded, with two states in turn. It is 0 if they make no sense.
func codedWeights(src []byte, at, end int, weights *[256]uint8) int {
	var counts [256]int16
	log, symbols, size, ok := readCounts(src[at:end], 16, 6, &counts)
	if !ok {
		return 0
	}
	var t table
	t.fill(log, weightCodes, counts[:symbols])
	var b backward
	if !b.open(src, at+size, end) {
		return 0
	}
	states := [2]uint64{b.read(log), b.read(log)}
	if b.left() < 0 {
		return 0
	}
	for n := 0; n < 254; n++ { // the last of at most 256 is not written, and one follows the loop
		e := t.entries[states[n&1]&(1<<maxLog-1)]
		weights[n] = uint8(e >> 32)
		if !b.reload() {
			return 0
		}
		states[n&1] = uint64(e&0xffff) + b.read(uint(e>>16&0xff))
		if b.left() < 0 {
			weights[n+1] = uint8(t.entries[states[(n+1)&1]&(1<<maxLog-1)] >> 32)
			return n + 2
		}
	}
	return 0
}

// fill makes the table from the weights of the first n symbols. The next one has the weight that completes them.
func (h *huffman) fill(weights *[256]uint8, n int) bool {
	var rank [maxHuffman + 2]int
	total := 0
	for _, w := range weights[:n] {
		if w > maxHuffman {
			return false
		}
		rank[w]++
		if w > 0 {
			total += 1 << (w - 1)
		}
	}
	if total == 0 || n > 255 {
		return false
	}
	log := uint(bits.Len(uint(total)))
	rest := 1<<log - total
	if log > maxHuffman || rest&(rest-1) != 0 {
		return false
	}
	weights[n] = uint8(bits.Len(uint(rest)))
	rank[weights[n]]++
	if rank[1] < 2 || rank[1]&1 != 0 { // the longest codes come in pairs
		return false
	}
	next := 0
	var begin [maxHuffman + 2]int
	for w := 1; w <= int(log); w++ {
		begin[w] = next
		next += rank[w] << (w - 1)
	}
	h.bits = log
	for s, w := range weights[:n+1] {
		if w == 0 {
			continue
		}
		e := uint16(s) | uint16(log+1-uint(w))<<8
		p := h.entries[begin[w] : begin[w]+1<<(w-1)]
		for i := range p {
			p[i] = e
		}
		begin[w] += 1 << (w - 1)
	}
	return true
}

// stream decodes one stream, src[start:end], which must fill dst and end with it.
func (h *huffman) stream(dst, src []byte, start, end int) bool {
	var b backward
	if !b.open(src, start, end) {
		return false
	}
	for i := range dst {
		if !b.reload() {
			return false
		}
		e := h.entries[b.word<<(b.used&63)>>(64-h.bits&63)&(1<<maxHuffman-1)]
		dst[i] = byte(e)
		b.used += uint(e >> 8)
	}
	return b.left() == 0
}

// pair decodes two streams at the same time, so that one's bytes are looked up while the other's are waited for.
func (h *huffman) pair(x, y, src []byte, at [3]int) bool {
	var bx, by backward
	if !bx.open(src, at[0], at[1]) || !by.open(src, at[1], at[2]) {
		return false
	}
	t := &h.entries
	shift := 64 - h.bits&63
	i, n := 0, min(len(x), len(y))-5
	px, wx, ux := bx.ptr, bx.word, bx.used
	py, wy, uy := by.ptr, by.word, by.used
	for i <= n { // five codes of 11 bits are fewer than the 57 that are there
		px -= int(ux >> 3)
		py -= int(uy >> 3)
		if px < 0 || py < 0 {
			return false
		}
		wx = binary.LittleEndian.Uint64(src[px:])
		wy = binary.LittleEndian.Uint64(src[py:])
		ux &= 7
		uy &= 7
		p, q := x[i:i+5], y[i:i+5]
		for j := range 5 {
			e := t[wx<<(ux&63)>>(shift&63)&(1<<maxHuffman-1)]
			f := t[wy<<(uy&63)>>(shift&63)&(1<<maxHuffman-1)]
			p[j] = byte(e)
			q[j] = byte(f)
			ux += uint(e >> 8)
			uy += uint(f >> 8)
		}
		i += 5
	}
	bx.ptr, bx.word, bx.used = px, wx, ux
	by.ptr, by.word, by.used = py, wy, uy
	return h.tail(x[i:], &bx) && h.tail(y[i:], &by)
}

// tail decodes what is left of a stream.
func (h *huffman) tail(dst []byte, b *backward) bool {
	for i := range dst {
		if !b.reload() {
			return false
		}
		e := h.entries[b.word<<(b.used&63)>>(64-h.bits&63)&(1<<maxHuffman-1)]
		dst[i] = byte(e)
		b.used += uint(e >> 8)
	}
	return b.left() == 0
}

// literals decodes the literals of the block in src[at:end] into d.lits. It says how many there are and where what
// follows them begins.
func (d *Decoder) literals(at, end int) (n, next int, err error) {
	if end-at < 2 { // what follows has at least one byte
		return 0, 0, BadLiterals
	}
	head := binary.LittleEndian.Uint64(d.src[at:]) // there are zeroes behind the end
	format := uint(head >> 2 & 3)
	if head&3 < 2 {
		return d.plainLiterals(head, format, at, end)
	}
	width, size := uint(10), 3
	if format >= 2 {
		width, size = 6+4*format, 2+int(format)
	}
	n = int(head >> 4 & (1<<width - 1))
	packed := int(head >> (4 + width) & (1<<width - 1))
	at += size
	next = at + packed
	if next >= end || n > MaxBlock {
		return 0, 0, BadLiterals
	}
	if head&3 == 2 {
		d.haveHuffman = false
		used, err := d.huff.read(d, at, next)
		if err != nil {
			return 0, 0, err
		}
		d.haveHuffman = true
		at += used
	}
	if !d.haveHuffman {
		return 0, 0, BadLiterals
	}
	ok := false
	if format == 0 {
		ok = d.huff.stream(d.lits[:n], d.src[:], at, next)
	} else {
		ok = d.four(n, at, next)
	}
	if !ok {
		return 0, 0, BadLiterals
	}
	return n, next, nil
}

func (d *Decoder) plainLiterals(head uint64, format uint, at, end int) (n, next int, err error) {
	size := 1
	switch format {
	case 1:
		size, n = 2, int(head>>4&0xfff)
	case 3:
		size, n = 3, int(head>>4&0xfffff)
	default:
		n = int(head >> 3 & 0x1f)
	}
	at += size
	if n > MaxBlock {
		return 0, 0, BadLiterals
	}
	if head&3 == 1 {
		if at+1 >= end {
			return 0, 0, BadLiterals
		}
		setAll(d.lits[:n], d.src[at])
		return n, at + 1, nil
	}
	if at+n >= end {
		return 0, 0, BadLiterals
	}
	copy(d.lits[:n], d.src[at:at+n])
	return n, at + n, nil
}

// four decodes n literals that come as four streams.
func (d *Decoder) four(n, at, end int) bool {
	if end-at < 10 || n < 6 {
		return false
	}
	var cut [5]int
	cut[0] = at + 6
	for i := range 3 {
		cut[i+1] = cut[i] + int(binary.LittleEndian.Uint16(d.src[at+2*i:]))
	}
	cut[4] = end
	each := (n + 3) / 4
	if cut[3] >= end || 3*each > n {
		return false
	}
	p := d.lits[:n]
	return d.huff.pair(p[:each], p[each:2*each], d.src[:], [3]int(cut[:3])) &&
		d.huff.pair(p[2*each:3*each], p[3*each:], d.src[:], [3]int(cut[2:]))
}
