package inflate

import "encoding/binary"

// What the fast loop may read and write in one round beyond where it stands, so that it checks only once: two refills of
// 8 bytes; three literals, or two and a match of 258 that is written up to 32 bytes over its end.
const (
	inMargin  = 16
	outMargin = 2 + 258 + 32
)

// low[n] has the lowest n bits set: faster than to shift, where shifts are slow.
var low = func() (m [64]uint64) {
	for i := range m {
		m[i] = 1<<i - 1
	}
	return m
}()

// fast decodes symbols for as long as there is a margin on both sides, or until a special case: the end of the block or an invalid
// code, which it leaves to careful.
//
// It is one function because its variables must stay in registers. nbits counts in its low six bits only; the higher bits are left
// over from subtracting whole entries.
func (d *Decoder) fast(dst []byte, op int, src []byte, ip int) (int, int, error) { //nolint:funlen // see above
	bits, nbits := d.bits&(1<<(d.nbits&63)-1), uint32(d.nbits)
	t := d.current()
	for ip < len(src)-inMargin && op < len(dst)-outMargin {
		bits |= binary.LittleEndian.Uint64(src[ip:]) << (nbits & 63)
		ip += int(7 - nbits>>3&7)
		nbits |= 56
		e := t.lit[bits&(1<<litBits-1)]
		if e&literal != 0 {
			bits >>= e & 63
			nbits -= e
			dst[op] = byte(e >> 16)
			op++
			e = t.lit[bits&(1<<litBits-1)]
			if e&literal != 0 {
				bits >>= e & 63
				nbits -= e
				dst[op] = byte(e >> 16)
				op++
				e = t.lit[bits&(1<<litBits-1)]
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
			s := t.lit[(uint64(e>>16)+bits>>litBits&low[e>>8&15])&(litSize-1)]
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
		length := int(e>>16) + int(bits&low[e&63]>>(e>>8&15))
		bits >>= e & 63
		nbits -= e
		if nbits&63 < 28 { // the most a distance has
			bits |= binary.LittleEndian.Uint64(src[ip:]) << (nbits & 63)
			ip += int(7 - nbits>>3&7)
			nbits |= 56
		}
		e = t.dist[bits&(1<<distBits-1)]
		if e&exceptional != 0 {
			if e&pointer == 0 {
				return op, ip, BadCode
			}
			bits >>= distBits
			nbits -= distBits
			e = t.dist[(uint64(e>>16)+bits&low[e>>8&15])&(distSize-1)]
			if e&exceptional != 0 {
				return op, ip, BadCode
			}
		}
		back := int(e>>16) + int(bits&low[e&63]>>(e>>8&15))
		bits >>= e & 63
		nbits -= e
		from := op - back
		// Only the first is ever true. The others tell the compiler what it would check again and again below.
		if from < 0 || op >= len(dst)-outMargin+2 || from >= len(dst)-outMargin+2 {
			return op, ip, BadDistance
		}
		switch {
		case back >= 8 && length <= 32:
			binary.LittleEndian.PutUint64(dst[op:], binary.LittleEndian.Uint64(dst[from:]))
			binary.LittleEndian.PutUint64(dst[op+8:], binary.LittleEndian.Uint64(dst[from+8:]))
			if length > 16 {
				binary.LittleEndian.PutUint64(dst[op+16:], binary.LittleEndian.Uint64(dst[from+16:]))
				binary.LittleEndian.PutUint64(dst[op+24:], binary.LittleEndian.Uint64(dst[from+24:]))
			}
		case back >= length:
			copy(dst[op:op+length], dst[from:])
		default:
			repeat(dst[op:], dst[from:], length, back)
			if back == 1 && length == 258 {
				var n int
				n, ip, bits, nbits = t.runs(src, ip, bits, nbits, (len(dst)-outMargin-op-258)/258)
				fillRun(dst[op+258:op+258+n*258], dst[op])
				op += n * 258
			}
		}
		op += length
	}
	d.bits, d.nbits = bits, uint(nbits&63)
	return op, ip, nil
}

// runs counts how often the longest match at distance 1 comes next, at most limit times, and drops it as often. A hole in
// a disk is nothing else for gigabytes. It only looks for codes short enough to stand in the root tables.
//
//go:noinline
func (t *tables) runs(src []byte, ip int, bits uint64, nbits uint32, limit int) (int, int, uint64, uint32) {
	nbits &= 63
	n, size := 0, uint32(64)
	var code uint64
	for n < limit {
		if ip > len(src)-8 {
			break
		}
		bits |= binary.LittleEndian.Uint64(src[ip:]) << nbits
		ip += int(7 - nbits>>3&7)
		nbits |= 56
		if size == 64 {
			e := t.lit[bits&(1<<litBits-1)]
			f := t.dist[bits>>(e&63)&(1<<distBits-1)]
			if e&exceptional != 0 || e>>16 != 258 || f&exceptional != 0 || f>>16 != 1 {
				break
			}
			size, code = e&63+f&63, bits
		}
		mask := low[size&63]
		for ; n < limit && nbits >= size; n++ {
			if (bits^code)&mask != 0 {
				return n, ip, bits, nbits
			}
			bits >>= size & 63
			nbits -= size
		}
	}
	return n, ip, bits, nbits
}

func fillRun(p []byte, v byte) {
	if v == 0 || len(p) == 0 {
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
	t := d.current()
	for {
		if !r.fill(48) && !last { // the most a match has
			return op, r.ip, NeedInput, nil
		}
		e, used := lookup(t.lit[:], litBits, r.bits)
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
		f, more := lookup(t.dist[:], distBits, r.bits>>used)
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

// valueOf returns the base of a length or distance and its extra bits, where bits begin with the part of the code that the entry
// speaks of.
func valueOf(e uint32, bits uint64) int {
	return int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
}
