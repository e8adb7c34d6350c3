package zstd

import "encoding/binary"

// sequence is so many literals and then a match.
type sequence struct {
	literals, match, offset uint32
}

// totals are sums over a block's sequences.
type totals struct {
	literals, matches int
}

// The modes of a table.
const (
	modeDefault = iota
	modeSingle
	modeCoded
	modeRepeat
)

// sequences decodes the sequences of the block in src[at:end] into d.seqs.
func (d *Decoder) sequences(at, end int) (n int, t totals, err error) {
	if at >= end {
		return 0, t, BadSequences
	}
	b := d.src[at:]
	switch {
	case b[0] < 128:
		n, at = int(b[0]), at+1
	case b[0] < 255:
		n, at = (int(b[0])-128)<<8+int(b[1]), at+2
	default:
		n, at = int(b[1])+int(b[2])<<8+0x7f00, at+3
	}
	if n == 0 {
		if at != end {
			return 0, t, BadSequences
		}
		return 0, t, nil
	}
	if n > len(d.seqs) || at >= end || d.src[at]&3 != 0 {
		return 0, t, BadSequences
	}
	modes := d.src[at]
	at++
	for i := range parts {
		if at, err = d.table(i, modes>>parts[i].shift&3, at, end); err != nil {
			return 0, t, err
		}
	}
	t, ok := d.decode(d.seqs[:n], at, end)
	if !ok {
		return 0, t, BadSequences
	}
	return n, t, nil
}

// The parts of a sequence, in the order in which a block describes their tables.
var parts = [3]struct {
	common *table
	codes  []code
	most   uint // bits of a state
	shift  uint // of its mode
}{
	{llDefault, llCodes, 9, 6},
	{ofDefault, ofCodes, 8, 4},
	{mlDefault, mlCodes, 9, 2},
}

// table reads the description of a part's table, which may be nothing, and says where it ends.
func (d *Decoder) table(i int, mode byte, at, end int) (int, error) {
	part := &parts[i]
	switch mode {
	case modeDefault:
		d.last[i] = part.common
	case modeSingle:
		if at >= end || int(d.src[at]) >= len(part.codes) {
			return 0, BadTable
		}
		d.own[i].single(part.codes[d.src[at]])
		d.last[i] = &d.own[i]
		at++
	case modeCoded:
		var counts [256]int16
		log, symbols, size, ok := readCounts(d.src[at:end], len(part.codes), part.most, &counts)
		if !ok {
			return 0, BadTable
		}
		d.own[i].fill(log, part.codes, counts[:symbols])
		d.last[i] = &d.own[i]
		at += size
	case modeRepeat:
		if d.last[i] == nil {
			return 0, BadTable
		}
	}
	return at, nil
}

// decode reads all sequences. It is one function because its variables must stay in registers.
func (d *Decoder) decode(seqs []sequence, at, end int) (t totals, ok bool) { //nolint:funlen // see above
	var b backward
	if !b.open(d.src[:], at, end) {
		return t, false
	}
	ll, of, ml := &d.last[0].entries, &d.last[1].entries, &d.last[2].entries
	sl, so, sm := b.read(d.last[0].log), b.read(d.last[1].log), b.read(d.last[2].log)
	ptr, used := b.ptr, b.used
	rep0, rep1, rep2 := d.rep[0], d.rep[1], d.rep[2]
	src := d.src[:]
	var literals, matches uint64
	for i := range seqs {
		el, eo, em := ll[sl&(1<<maxLog-1)], of[so&(1<<maxLog-1)], ml[sm&(1<<maxLog-1)]
		ptr -= int(used >> 3)
		used &= 7
		if ptr < 0 {
			return t, false
		}
		word := binary.LittleEndian.Uint64(src[ptr:]) << used
		n := uint(eo >> 24 & 63) // at most 31 bits of the offset and 16 of the match
		offset := uint32(eo>>32) + uint32(word>>1>>(63-n&63))
		word <<= n
		used += n
		n = uint(em >> 24 & 63)
		match := uint32(em>>32) + uint32(word>>1>>(63-n&63))
		used += n

		ptr -= int(used >> 3)
		used &= 7
		if ptr < 0 {
			return t, false
		}
		word = binary.LittleEndian.Uint64(src[ptr:]) << used
		n = uint(el >> 24 & 63) // at most 16 bits, and 26 for the states
		lits := uint32(el>>32) + uint32(word>>1>>(63-n&63))
		word <<= n
		used += n
		if i < len(seqs)-1 {
			n = uint(el >> 16 & 63)
			sl = uint64(el&0xffff) + word>>1>>(63-n&63)
			word <<= n
			used += n
			n = uint(em >> 16 & 63)
			sm = uint64(em&0xffff) + word>>1>>(63-n&63)
			word <<= n
			used += n
			n = uint(eo >> 16 & 63)
			so = uint64(eo&0xffff) + word>>1>>(63-n&63)
			used += n
		}

		if offset > 3 {
			rep2, rep1, rep0 = rep1, rep0, offset-3
		} else {
			if lits == 0 {
				offset++
			}
			switch offset {
			case 1:
			case 2:
				rep1, rep0 = rep0, rep1
			case 3:
				rep2, rep1, rep0 = rep1, rep0, rep2
			default:
				rep2, rep1, rep0 = rep1, rep0, rep0-1
			}
		}
		seqs[i] = sequence{lits, match, rep0}
		literals += uint64(lits)
		matches += uint64(match)
	}
	b.ptr, b.used = ptr, used
	d.rep = [3]uint32{rep0, rep1, rep2}
	const most = 2 * MaxBlock // enough to be refused, and no overflow
	return totals{int(min(literals, most)), int(min(matches, most))}, b.left() == 0
}
