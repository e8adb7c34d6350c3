package lzma

const (
	top    = 1 << 24
	inMask = 1<<17 - 1
	move   = 5 // how fast probabilities adapt
	one    = 1 << 11
	pull   = 1<<32 + 31 - one // added to a probability whose bit was 0, the shift by move rounds the same way for both
)

// The states after each symbol.
var (
	afterLiteral  = [16]uint32{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 4, 5}
	afterMatch    = [16]uint32{7, 7, 7, 7, 7, 7, 7, 10, 10, 10, 10, 10}
	afterRep      = [16]uint32{8, 8, 8, 8, 8, 8, 8, 11, 11, 11, 11, 11}
	afterShortRep = [16]uint32{9, 9, 9, 9, 9, 9, 9, 11, 11, 11, 11, 11}
)

// run decodes symbols into page from d.pos up to limit. It is one function because the range decoder's variables must
// stay in registers; each of its repetitions of
//
//	normalise; bound := rng>>11 * probability; code < bound ?
//
// decodes one bit. Reading beyond the chunk's end finds zeroes; the caller checks where ip ended up.
func (d *Decoder) run(page []byte, limit int) error { //nolint:funlen // see above
	pos := d.pos
	if d.pending > 0 {
		n := min(d.pending, limit-pos)
		d.copyMatch(page, pos, int(d.rep[0])+1, n)
		d.pending -= n
		pos += n
	}
	rng, code, ip := d.rng, d.code, d.ip
	in := &d.in
	state := d.state & 15
	rep0 := int(d.rep[0])
	base := (len(d.pages)-1)<<pageBits - d.origin // pos + base bytes were written since the dictionary's reset
	pbMask, lpMask, lc := 1<<d.pb-1, 1<<d.lp-1, d.lc&7
	var prev byte
	if base+pos > 0 {
		prev = d.at(page, pos, 1)
	}
	for pos < limit && ip <= MaxPacked+32 {
		at := base + pos
		posState := at & pbMask & 15
		p := &d.isMatch[state][posState]
		if rng < top {
			rng <<= 8
			code = code<<8 | uint32(in[ip&inMask])
			ip++
		}
		prob := uint32(*p)
		bound := rng >> 11 * prob
		if code < bound {
			rng = bound
			*p = uint16(prob + (one-prob)>>move)
			lit := (*[0x300]uint16)(d.literal[0x300*((at&lpMask)<<lc+int(prev)>>(8-lc)):])
			symbol := uint32(1)
			if state < 7 {
				for symbol < 0x100 {
					if rng < top {
						rng <<= 8
						code = code<<8 | uint32(in[ip&inMask])
						ip++
					}
					prob := uint32(lit[symbol])
					bound := rng >> 11 * prob
					zero := uint32(int64(uint64(code)-uint64(bound)) >> 63) // all ones if the bit is 0
					rng = rng - bound + zero&(2*bound-rng)
					code -= bound &^ zero
					lit[symbol] = uint16(prob - uint32(int32(prob+zero&pull)>>move))
					symbol = symbol<<1 + 1 + zero
				}
				state = afterLiteral[state]
			} else {
				if rep0 >= at {
					return BadDistance
				}
				match := uint32(d.at(page, pos, rep0+1))
				offset := uint32(0x100)
				for symbol < 0x100 {
					match <<= 1
					q := &lit[offset+match&offset+symbol]
					if rng < top {
						rng <<= 8
						code = code<<8 | uint32(in[ip&inMask])
						ip++
					}
					prob := uint32(*q)
					bound := rng >> 11 * prob
					zero := uint32(int64(uint64(code)-uint64(bound)) >> 63)
					rng = rng - bound + zero&(2*bound-rng)
					code -= bound &^ zero
					*q = uint16(prob - uint32(int32(prob+zero&pull)>>move))
					symbol = symbol<<1 + 1 + zero
					offset &= match ^ zero
				}
				state = afterLiteral[state]
			}
			prev = byte(symbol)
			page[pos] = prev
			pos++
			continue
		}
		rng -= bound
		code -= bound
		*p = uint16(prob - prob>>move)
		length := 1
		p = &d.isRep[state]
		if rng < top {
			rng <<= 8
			code = code<<8 | uint32(in[ip&inMask])
			ip++
		}
		prob = uint32(*p)
		bound = rng >> 11 * prob
		if code < bound {
			rng = bound
			*p = uint16(prob + (one-prob)>>move)
			d.rep[3], d.rep[2], d.rep[1] = d.rep[2], d.rep[1], uint32(rep0)
			length, rng, code, ip = d.length.decode(in, posState, rng, code, ip)
			rep0, rng, code, ip = d.distance(in, length, rng, code, ip)
			state = afterMatch[state&15] & 15
		} else {
			rng -= bound
			code -= bound
			*p = uint16(prob - prob>>move)
			p = &d.isRepG0[state]
			if rng < top {
				rng <<= 8
				code = code<<8 | uint32(in[ip&inMask])
				ip++
			}
			prob = uint32(*p)
			bound = rng >> 11 * prob
			long := true
			if code < bound {
				rng = bound
				*p = uint16(prob + (one-prob)>>move)
				p = &d.rep0Long[state][posState]
				if rng < top {
					rng <<= 8
					code = code<<8 | uint32(in[ip&inMask])
					ip++
				}
				prob = uint32(*p)
				bound = rng >> 11 * prob
				if code < bound {
					rng = bound
					*p = uint16(prob + (one-prob)>>move)
					long = false
				} else {
					rng -= bound
					code -= bound
					*p = uint16(prob - prob>>move)
				}
			} else {
				rng -= bound
				code -= bound
				*p = uint16(prob - prob>>move)
				rep0, rng, code, ip = d.older(in, state, rep0, rng, code, ip)
			}
			if long {
				length, rng, code, ip = d.repLen.decode(in, posState, rng, code, ip)
				state = afterRep[state&15] & 15
			} else {
				state = afterShortRep[state&15] & 15
			}
		}
		if rep0 >= at || rep0 >= d.dict {
			return BadDistance
		}
		n := min(length, limit-pos)
		if from := pos - rep0 - 1; from >= 0 && rep0 >= n {
			copy(page[pos:pos+n], page[from:from+n])
		} else {
			d.copyMatch(page, pos, rep0+1, n)
		}
		pos += n
		d.pending = length - n
		prev = page[pos-1]
	}
	d.pos, d.rng, d.code, d.ip, d.state = pos, rng, code, ip, state
	d.rep[0] = uint32(rep0)
	if pos < limit {
		return BadData
	}
	return nil
}

// at returns the byte back before pos, which is in page, the last one.
func (d *Decoder) at(page []byte, pos, back int) byte {
	if back <= pos {
		return page[pos-back]
	}
	from := (len(d.pages)-1)<<pageBits + pos - back
	return d.pages[from>>pageBits][from&(PageSize-1)]
}

// copyMatch writes the n bytes at pos that repeat those back before, which may overlap them or lie on an earlier page.
func (d *Decoder) copyMatch(page []byte, pos, back, n int) {
	to := page[pos : pos+n]
	for back > pos && len(to) > 0 {
		from := (len(d.pages)-1)<<pageBits + pos - back
		m := copy(to, d.pages[from>>pageBits][from&(PageSize-1):])
		to, pos = to[m:], pos+m
	}
	if len(to) == 0 {
		return
	}
	if back == 1 && page[pos-1] == 0 {
		clear(to)
		return
	}
	// What was copied can be copied again: twice as much in each turn.
	from := page[pos-back : pos-back+back+len(to)]
	for done := 0; done < len(to); {
		done += copy(to[done:], from[:back+done])
	}
}

// older moves one of the earlier match distances (rep1 to rep3) to the front, and returns it.
func (d *Decoder) older(in *[1 << 17]byte, state uint32, rep0 int, rng, code uint32, ip int) (int, uint32, uint32, int) {
	var bit uint32
	which := 1
	if bit, rng, code, ip = decodeBit(&d.isRepG1[state&15], in, rng, code, ip); bit != 0 {
		bit, rng, code, ip = decodeBit(&d.isRepG2[state&15], in, rng, code, ip)
		which = 2 + int(bit)
	}
	dist := d.rep[which&3]
	for i := which & 3; i > 1; i-- {
		d.rep[i] = d.rep[i-1]
	}
	d.rep[1] = uint32(rep0)
	return int(dist), rng, code, ip
}

func decodeBit(p *uint16, in *[1 << 17]byte, rng, code uint32, ip int) (uint32, uint32, uint32, int) {
	if rng < top {
		rng <<= 8
		code = code<<8 | uint32(in[ip&inMask])
		ip++
	}
	prob := uint32(*p)
	bound := rng >> 11 * prob
	if code < bound {
		*p = uint16(prob + (one-prob)>>move)
		return 0, bound, code, ip
	}
	*p = uint16(prob - prob>>move)
	return 1, rng - bound, code - bound, ip
}

// decode reads the length of a match.
func (l *lengths) decode(in *[1 << 17]byte, posState int, rng, code uint32, ip int) (int, uint32, uint32, int) {
	bit, rng, code, ip := decodeBit(&l.choice, in, rng, code, ip)
	var v uint32
	if bit == 0 {
		v, rng, code, ip = tree(l.low[posState&15][:], 3, in, rng, code, ip)
		return int(v) + 2, rng, code, ip
	}
	bit, rng, code, ip = decodeBit(&l.choice2, in, rng, code, ip)
	if bit == 0 {
		v, rng, code, ip = tree(l.mid[posState&15][:], 3, in, rng, code, ip)
		return int(v) + 10, rng, code, ip
	}
	v, rng, code, ip = tree(l.high[:], 8, in, rng, code, ip)
	return int(v) + 18, rng, code, ip
}

// tree decodes a number of bits bits, the highest first.
func tree(p []uint16, bits uint, in *[1 << 17]byte, rng, code uint32, ip int) (uint32, uint32, uint32, int) {
	symbol := uint32(1)
	for symbol < 1<<bits {
		if rng < top {
			rng <<= 8
			code = code<<8 | uint32(in[ip&inMask])
			ip++
		}
		prob := uint32(p[symbol])
		bound := rng >> 11 * prob
		zero := uint32(int64(uint64(code)-uint64(bound)) >> 63)
		rng = rng - bound + zero&(2*bound-rng)
		code -= bound &^ zero
		p[symbol] = uint16(prob - uint32(int32(prob+zero&pull)>>move))
		symbol = symbol<<1 + 1 + zero
	}
	return symbol - 1<<bits, rng, code, ip
}

// reverse decodes a number of bits bits, the lowest first.
func reverse(p []uint16, bits uint, in *[1 << 17]byte, rng, code uint32, ip int) (uint32, uint32, uint32, int) {
	symbol, v := uint32(1), uint32(0)
	for i := uint(0); i < bits; i++ {
		var bit uint32
		bit, rng, code, ip = decodeBit(&p[symbol], in, rng, code, ip)
		symbol = symbol<<1 + bit
		v |= bit << (i & 31)
	}
	return v, rng, code, ip
}

// distance reads the distance, less one, of a match of this length.
func (d *Decoder) distance(in *[1 << 17]byte, length int, rng, code uint32, ip int) (int, uint32, uint32, int) {
	slot, rng, code, ip := tree(d.slot[min(length-2, 3)&3][:], 6, in, rng, code, ip)
	if slot < 4 {
		return int(slot), rng, code, ip
	}
	bits := uint(slot>>1-1) & 31
	dist := (2 | slot&1) << bits
	var v uint32
	if slot < 14 {
		v, rng, code, ip = reverse(d.special[dist-slot:], bits, in, rng, code, ip)
		return int(dist + v), rng, code, ip
	}
	var direct uint32
	for range bits - 4 {
		if rng < top {
			rng <<= 8
			code = code<<8 | uint32(in[ip&inMask])
			ip++
		}
		rng >>= 1
		code -= rng
		negative := -(code >> 31)
		code += rng & negative
		direct = direct<<1 + 1 + negative
	}
	v, rng, code, ip = reverse(d.align[:], 4, in, rng, code, ip)
	return int(dist + direct<<4 + v), rng, code, ip
}
