package inflate

import (
	"encoding/binary"
	"hash/adler32"
)

// The order in which a header gives the lengths of the code lengths' codes.
var preOrder = [preCodes]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// reader takes bits off src with care for its end.
type reader struct {
	src   []byte
	ip    int
	bits  uint64
	nbits uint
}

// fill makes at least n bits available if src has them, n <= 56.
func (r *reader) fill(n uint) bool {
	for r.nbits < n {
		if r.ip >= len(r.src) {
			return false
		}
		r.bits |= uint64(r.src[r.ip]) << (r.nbits & 63)
		r.ip++
		r.nbits += 8
	}
	return true
}

func (r *reader) take(n uint) uint {
	v := uint(r.bits) & (1<<(n&63) - 1)
	r.bits >>= n & 63
	r.nbits -= n
	return v
}

// header reads a block's header and makes its tables. If src ends within the header, nothing is consumed: the header is read again
// from its beginning (it has 288 bytes at most).
func (d *Decoder) header(src []byte, ip int, last bool) (int, Status, error) {
	if d.final {
		d.phase = atEnd
		return ip, Done, nil
	}
	r := reader{src: src, ip: ip, bits: d.bits & (1<<(d.nbits&63) - 1), nbits: d.nbits}
	err := error(Truncated)
	if r.fill(3) {
		final := r.take(1) == 1
		switch r.take(2) {
		case 0:
			err = d.storedHeader(&r)
		case 1:
			d.phase, d.fixed, err = inCodes, true, nil
		case 2:
			err = d.dynamicHeader(&r)
		default:
			err = BadBlock
		}
		if err == nil {
			d.final = final
			d.bits, d.nbits = r.bits, r.nbits
			return r.ip, goOn, nil
		}
	}
	if err == Truncated && !last { //nolint:errorlint // never wrapped here, and this is on the way of every block
		return ip, NeedInput, nil
	}
	return ip, Failed, err
}

func (d *Decoder) storedHeader(r *reader) error {
	r.take(r.nbits & 7)
	if !r.fill(32) {
		return Truncated
	}
	n, inverse := r.take(16), r.take(16)
	if n != inverse^0xffff {
		return BadStored
	}
	d.phase, d.stored = inStored, int(n)
	return nil
}

// copyStored copies what it can of a stored block.
func (d *Decoder) copyStored(dst []byte, op int, src []byte, ip int, last bool) (int, int, Status, error) {
	ip -= int(d.nbits >> 3) // the bits are whole bytes here: back with them
	d.bits, d.nbits = 0, 0
	n := copy(dst[op:], src[ip:min(len(src), ip+d.stored)])
	d.stored -= n
	op, ip = op+n, ip+n
	switch {
	case d.stored == 0:
		d.phase = atHeader
		return op, ip, d.blockEnd(), nil
	case op == len(dst):
		d.want = 0
		return op, ip, NeedOutput, nil
	case last:
		return op, ip, Failed, Truncated
	}
	return op, ip, NeedInput, nil
}

// blockEnd returns the status at the end of a block.
func (d *Decoder) blockEnd() Status {
	if d.final {
		d.phase = atEnd
		return Done
	}
	d.phase = atHeader
	return Block
}

func (d *Decoder) dynamicHeader(r *reader) error {
	if !r.fill(14) {
		return Truncated
	}
	nlit, ndist, npre := int(r.take(5))+257, int(r.take(5))+1, int(r.take(4))+4
	if nlit > 286 || ndist > 30 {
		return BadLengths
	}
	var pre [preCodes]uint8
	for _, s := range preOrder[:npre] {
		if !r.fill(3) {
			return Truncated
		}
		pre[s] = uint8(r.take(3))
	}
	if !build(d.pre[:], preBits, pre[:], preMeans[:]) {
		return BadLengths
	}
	if err := d.codeLengths(r, nlit+ndist); err != nil {
		return err
	}
	if !build(d.own.lit[:], litBits, d.lens[:nlit], litMeans[:]) ||
		!build(d.own.dist[:], distBits, d.lens[nlit:nlit+ndist], distMeans[:]) {
		return BadLengths
	}
	d.phase, d.fixed = inCodes, false
	return nil
}

// codeLengths reads n code lengths, which are themselves coded.
func (d *Decoder) codeLengths(r *reader, n int) error {
	lens := d.lens[:n]
	for i := 0; i < n; {
		more := r.fill(14) // 7 of the code and 7 of a count
		e := d.pre[r.bits&(preSize-1)]
		if e&exceptional != 0 {
			if !more {
				return Truncated
			}
			return BadLengths
		}
		sym := e >> 16
		var value uint8
		need, least := uint(0), 1
		switch sym {
		case 16:
			if i == 0 {
				return BadLengths
			}
			value, need, least = lens[i-1], 2, 3
		case 17:
			need, least = 3, 3
		case 18:
			need, least = 7, 11
		default:
			value = uint8(sym)
		}
		if r.nbits < uint(e&63)+need {
			return Truncated
		}
		r.take(uint(e & 63))
		rep := least + int(r.take(need))
		if rep > n-i {
			return BadLengths
		}
		for ; rep > 0; rep-- {
			lens[i] = value
			i++
		}
	}
	return nil
}

// fixed are the tables of every block that brings none.
var fixed = makeFixed()

func makeFixed() *tables {
	var t tables
	var lens [litCodes + distCodes]uint8
	for i := range lens {
		switch {
		case i < 144:
			lens[i] = 8
		case i < 256:
			lens[i] = 9
		case i < 280:
			lens[i] = 7
		case i < litCodes:
			lens[i] = 8
		default:
			lens[i] = 5
		}
	}
	build(t.lit[:], litBits, lens[:litCodes], litMeans[:])
	build(t.dist[:], distBits, lens[litCodes:], distMeans[:])
	return &t
}

// current returns the tables of the present block.
func (d *Decoder) current() *tables {
	if d.fixed {
		return fixed
	}
	return &d.own
}

// adler checks the sum that follows a zlib stream.
func adler(p, src []byte) error {
	if len(src) < 4 {
		return Truncated
	}
	if binary.BigEndian.Uint32(src) != adler32.Checksum(p) {
		return BadSum
	}
	return nil
}
