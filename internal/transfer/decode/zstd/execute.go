package zstd

import "encoding/binary"

// execute writes out a block: the sequences, and then what is left of the n literals. The sums were checked: all of it
// is size bytes.
func (d *Decoder) execute(seqs []sequence, n, size int) error {
	if size == 0 {
		return nil
	}
	page := d.room()
	if d.pos+size > PageSize {
		return d.across(seqs, n)
	}
	begin := (len(d.list)-1)<<pageBits - d.origin // pos + begin bytes of the frame are before pos
	pos, lit := d.pos, 0
	lits := d.lits[:]
	for i := range seqs {
		s := &seqs[i]
		// Literals are short for the most part, and there is room behind both ends.
		ll := int(s.literals)
		if ll <= 16 {
			if uint(lit) > uint(len(lits)-32) || uint(pos) > uint(len(page)-32) {
				return BadSize
			}
			binary.LittleEndian.PutUint64(page[pos:], binary.LittleEndian.Uint64(lits[lit:]))
			binary.LittleEndian.PutUint64(page[pos+8:], binary.LittleEndian.Uint64(lits[lit+8:]))
		} else {
			copy(page[pos:pos+ll], lits[lit:lit+ll])
		}
		pos += ll
		lit += ll
		back, ml := int(s.offset), int(s.match)
		if back == 0 || back > begin+pos || back > d.window {
			return BadOffset
		}
		from := pos - back
		switch {
		case from < 0:
			d.far(page, pos, back, ml)
		case back >= 16 && ml <= 32:
			if uint(pos) > uint(len(page)-32) || uint(from) > uint(len(page)-32) {
				return BadSize
			}
			binary.LittleEndian.PutUint64(page[pos:], binary.LittleEndian.Uint64(page[from:]))
			binary.LittleEndian.PutUint64(page[pos+8:], binary.LittleEndian.Uint64(page[from+8:]))
			if ml > 16 {
				binary.LittleEndian.PutUint64(page[pos+16:], binary.LittleEndian.Uint64(page[from+16:]))
				binary.LittleEndian.PutUint64(page[pos+24:], binary.LittleEndian.Uint64(page[from+24:]))
			}
		case back >= ml:
			copy(page[pos:pos+ml], page[from:from+ml])
		default:
			repeat(page[from:pos+ml], back)
		}
		pos += ml
	}
	pos += copy(page[pos:], lits[lit:n])
	d.pos = pos
	return nil
}

// repeat fills p with what its first back bytes are.
func repeat(p []byte, back int) {
	if back == 1 && p[0] == 0 {
		clear(p)
		return
	}
	for done := back; done < len(p); {
		done += copy(p[done:], p[:done])
	}
}

// far copies a match that begins on an earlier page.
func (d *Decoder) far(page []byte, pos, back, n int) {
	to := page[pos : pos+n]
	for back > pos && len(to) > 0 {
		from := (len(d.list)-1)<<pageBits + pos - back
		m := copy(to, d.list[from>>pageBits][from&(PageSize-1):PageSize])
		to, pos = to[m:], pos+m
	}
	if len(to) > 0 {
		repeat(page[pos-back:pos+len(to)], back)
	}
}

// across is execute for a block that does not fit into its page.
func (d *Decoder) across(seqs []sequence, n int) error {
	lits := d.lits[:n]
	for i := range seqs {
		s := &seqs[i]
		d.Raw(lits[:s.literals])
		lits = lits[s.literals:]
		back := int(s.offset)
		if back == 0 || back > d.At()-d.origin || back > d.window {
			return BadOffset
		}
		for left := int(s.match); left > 0; {
			page := d.room()
			m := min(left, PageSize-d.pos)
			d.far(page, d.pos, back, m)
			d.pos += m
			left -= m
		}
	}
	d.Raw(lits)
	return nil
}
