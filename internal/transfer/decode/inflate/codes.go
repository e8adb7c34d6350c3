package inflate

import "encoding/binary"

// What the fast loop may read and write in one round beyond where it stands, so that it checks only once: two refills of
// 8 bytes; three literals, or two and a match of 258 that is written up to 32 bytes over its end.
const (
	inMargin  = 16
	outMargin = 2 + 258 + 32
)

// fast decodes symbols for as long as there is a margin on both sides, or until something needs a closer look: the end
// of the block or a code that does not exist, which it leaves for careful to find again.
//
// It is one function because its variables must stay in registers. nbits counts in its low six bits only; what is above
// is dirt from subtracting whole entries.
func (d *Decoder) fast(dst []byte, op int, src []byte, ip int) (int, int, error) { //nolint:funlen // see above
	bits, nbits := d.bits&(1<<(d.nbits&63)-1), uint32(d.nbits)
	lit, dist := d.tables()
	inEnd, outEnd := len(src)-inMargin, len(dst)-outMargin
	var err error
	for ip < inEnd && op < outEnd {
		bits |= binary.LittleEndian.Uint64(src[ip:]) << (nbits & 63)
		ip += int(7 - nbits>>3&7)
		nbits |= 56
		e := lit[bits&(1<<litBits-1)]
		if e&literal != 0 {
			bits >>= e & 63
			nbits -= e
			dst[op] = byte(e >> 16)
			op++
			e = lit[bits&(1<<litBits-1)]
			if e&literal != 0 {
				bits >>= e & 63
				nbits -= e
				dst[op] = byte(e >> 16)
				op++
				e = lit[bits&(1<<litBits-1)]
				if e&literal != 0 {
					bits >>= e & 63
					nbits -= e
					dst[op] = byte(e >> 16)
					op++
					continue
				}
			}
		}
		if e&exceptional != 0 {
			if e&pointer == 0 {
				break
			}
			s := lit[(uint64(e>>16)+bits>>litBits&(1<<(e>>8&15)-1))&(litSize-1)]
			if s&exceptional != 0 {
				break
			}
			bits >>= litBits
			nbits -= litBits
			if s&literal != 0 {
				bits >>= s & 63
				nbits -= s
				dst[op] = byte(s >> 16)
				op++
				continue
			}
			e = s
		}
		length := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		code := bits
		bits >>= e & 63
		nbits -= e
		if nbits&63 < 28 { // the most a distance has
			bits |= binary.LittleEndian.Uint64(src[ip:]) << (nbits & 63)
			ip += int(7 - nbits>>3&7)
			nbits |= 56
		}
		e = dist[bits&(1<<distBits-1)]
		if e&exceptional != 0 {
			if e&pointer == 0 {
				err = BadCode
				break
			}
			bits >>= distBits
			nbits -= distBits
			e = dist[(uint64(e>>16)+bits&(1<<(e>>8&15)-1))&(distSize-1)]
			if e&exceptional != 0 {
				err = BadCode
				break
			}
		}
		back := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		nbits -= e
		if back > op {
			err = BadDistance
			break
		}
		if back == 1 && length == 258 {
			n := 258
			if size := runCode(code, lit, dist); size != 0 {
				var again int
				again, ip, bits, nbits = runs(code, size, (outEnd-op)/258, src, ip, bits, nbits)
				n += 258 * again
			}
			fillRun(dst[op:op+n], dst[op-1])
			op += n
			continue
		}
		to, from := dst[op:], dst[op-back:]
		op += length
		switch {
		case back >= 8 && length <= 32:
			_, _ = to[31], from[31]
			binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(from))
			binary.LittleEndian.PutUint64(to[8:], binary.LittleEndian.Uint64(from[8:]))
			if length > 16 {
				binary.LittleEndian.PutUint64(to[16:], binary.LittleEndian.Uint64(from[16:]))
				binary.LittleEndian.PutUint64(to[24:], binary.LittleEndian.Uint64(from[24:]))
			}
		case back >= length:
			copy(to[:length], from)
		default:
			repeat(to, from, length, back)
		}
	}
	d.bits, d.nbits = bits, uint(nbits&63)
	return op, ip, err
}

// runCode is how many bits the longest match at distance 1 has, if that is what bits begin with and its codes are short
// enough to stand in the root tables; else 0.
func runCode(bits uint64, lit *[litSize]uint32, dist *[distSize]uint32) uint32 {
	e := lit[bits&(1<<litBits-1)]
	f := dist[bits>>(e&63)&(1<<distBits-1)]
	if e&exceptional != 0 || e>>16 != 258 || f&exceptional != 0 || f>>16 != 1 {
		return 0
	}
	return e&63 + f&63
}

// runs counts how often the match that was just decoded, whose code is the low size bits of code, follows again, at most
// limit times, and drops it as often. A hole in a disk is nothing else for gigabytes.
func runs(code uint64, size uint32, limit int, src []byte, ip int, bits uint64, nbits uint32) (int, int, uint64, uint32) {
	n, mask := 0, uint64(1)<<size-1
	nbits &= 63
	for n < limit {
		if nbits < size {
			if ip > len(src)-8 {
				break
			}
			bits |= binary.LittleEndian.Uint64(src[ip:]) << nbits
			ip += int(7 - nbits>>3&7)
			nbits |= 56
		}
		if (bits^code)&mask != 0 {
			break
		}
		bits >>= size
		nbits -= size
		n++
	}
	return n, ip, bits, nbits
}

func fillRun(p []byte, v byte) {
	if v == 0 {
		clear(p)
		return
	}
	p[0] = v
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

// repeat writes length bytes that repeat the last back ones, which is where from begins; it may write up to 8 more.
func repeat(to, from []byte, length, back int) {
	to, from = to[:length+8], from[:length+8]
	if back == 1 {
		v := uint64(from[0]) * 0x0101010101010101
		for len(to) > 8 {
			binary.LittleEndian.PutUint64(to, v)
			to = to[8:]
		}
		return
	}
	step := min(back, 8) // so many of the 8 bytes read are already there
	for i := 0; i < length; i += step {
		binary.LittleEndian.PutUint64(to[i:], binary.LittleEndian.Uint64(from[i:]))
	}
}

// careful decodes symbols one at a time near the ends of the buffers.
func (d *Decoder) careful(dst []byte, op int, src []byte, ip int, last bool) (int, int, Status, error) {
	r := reader{src: src, ip: ip, bits: d.bits & (1<<(d.nbits&63) - 1), nbits: d.nbits}
	defer func() { d.bits, d.nbits = r.bits, r.nbits }()
	lit, dist := d.tables()
	for {
		if !r.fill(48) && !last { // the most a match has
			return op, r.ip, NeedInput, nil
		}
		e, used := lookup(lit[:], litBits, r.bits)
		if used > r.nbits {
			return op, r.ip, Failed, Truncated
		}
		switch {
		case e&literal != 0:
			if op == len(dst) {
				d.want = 0
				return op, r.ip, NeedOutput, nil
			}
			r.take(used)
			dst[op] = byte(e >> 16)
			op++
			continue
		case e&end != 0:
			r.take(used)
			return op, r.ip, d.blockEnd(), nil
		case e&exceptional != 0:
			return op, r.ip, Failed, BadCode
		}
		length := valueOf(e, r.bits>>(used-uint(e&63)))
		f, more := lookup(dist[:], distBits, r.bits>>used)
		if used+more > r.nbits {
			return op, r.ip, Failed, Truncated
		}
		if f&exceptional != 0 {
			return op, r.ip, Failed, BadCode
		}
		back := valueOf(f, r.bits>>(used+more-uint(f&63)))
		if back > op {
			return op, r.ip, Failed, BadDistance
		}
		if length > len(dst)-op {
			d.want, d.back = length, back
			return op, r.ip, NeedOutput, nil
		}
		r.take(used + more)
		for range length {
			dst[op] = dst[op-back]
			op++
		}
	}
}

// lookup finds the entry for the next bits and how many it uses up in all, extra bits too.
func lookup(table []uint32, root uint, bits uint64) (e uint32, used uint) {
	e = table[bits&(1<<root-1)]
	if e&pointer == 0 {
		return e, uint(e & 63)
	}
	e = table[uint64(e>>16)+bits>>root&(1<<(e>>8&15)-1)]
	return e, root + uint(e&63)
}

// valueOf is the base of a length or distance and its extra bits, where bits begin with the part of the code that the
// entry speaks of.
func valueOf(e uint32, bits uint64) int {
	return int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
}
