package inflate

import "math/bits"

// A table entry says in one word what the next bits of the stream mean:
//
//	literal   bit 31, the byte in bits 16-23, how many bits to drop in bits 0-5
//	length    base in bits 16-24, bits of the code in bits 8-11, bits of code and extra bits together in bits 0-5
//	distance  base in bits 16-30 (it fits: 24577), the rest as for a length
//	pointer   exceptional and pointer, where the second table begins in bits 16-27, its width in bits 8-11, root bits in 0-5
//	end       exceptional and end, how many bits to drop in bits 0-5
//	invalid   exceptional alone
//
// Bits 0-5 are all a shift looks at, so an entry is its own shift count.
const (
	literal     = 1 << 31
	exceptional = 1 << 15
	pointer     = 1 << 14
	end         = 1 << 13
)

// Sizes of the tables. A root table is indexed by that many bits of the stream, longer codes continue in second tables. The most
// entries that a complete set of codes can need is 2342 for 288 symbols behind 11 bits and 402 for 32 behind 8; the arrays are the
// powers of two above, so that a masked index needs no bounds check.
const (
	litBits  = 11
	litSize  = 4096
	distBits = 8
	distSize = 512
	preBits  = 7 // the code lengths' own codes are at most 7 bits long and need no second table
	preSize  = 128

	maxBits   = 15
	litCodes  = 288
	distCodes = 32
	preCodes  = 19
)

// tables are the code tables of one block.
type tables struct {
	lit  [litSize]uint32
	dist [distSize]uint32
}

// What each symbol means, without the number of bits of its code.
var (
	litMeans  = litMeaning()
	distMeans = distMeaning()
	preMeans  = preMeaning()
)

func litMeaning() (m [litCodes]uint32) {
	for i := range 256 {
		m[i] = literal | uint32(i)<<16
	}
	m[256] = exceptional | end
	base := uint32(3)
	for i := range 28 {
		extra := uint32(0)
		if i >= 8 {
			extra = uint32(i)/4 - 1
		}
		m[257+i] = base<<16 | extra
		base += 1 << extra
	}
	m[285] = 258 << 16 // not 258 in 5 extra bits, which RFC 1951 gives to the code before
	m[286], m[287] = exceptional, exceptional
	return m
}

func distMeaning() (m [distCodes]uint32) {
	base := uint32(1)
	for i := range 30 {
		extra := uint32(0)
		if i >= 4 {
			extra = uint32(i)/2 - 1
		}
		m[i] = base<<16 | extra
		base += 1 << extra
	}
	m[30], m[31] = exceptional, exceptional
	return m
}

func preMeaning() (m [preCodes]uint32) {
	for i := range m {
		m[i] = uint32(i) << 16
	}
	return m
}

// entry joins a symbol's meaning with the number of bits that are dropped for its code in this table.
func entry(meaning uint32, n uint) uint32 {
	if meaning&(literal|exceptional) != 0 {
		return meaning | uint32(n)
	}
	return meaning + uint32(n)<<8 + uint32(n)
}

// build fills table, whose root is indexed by root bits, from the code length of each symbol. It is false if the lengths
// are no prefix code: too many codes, or too few (but a single code of one bit is allowed, as is none at all; whatever
// is not a code then is invalid).
func build(table []uint32, root uint, lens []uint8, means []uint32) bool {
	var count [maxBits + 1]uint16
	for _, n := range lens {
		count[n&15]++
	}
	count[0] = 0
	var offset [maxBits + 2]uint16
	space := uint32(0) // of 1<<maxBits, how much is taken
	for n := 1; n <= maxBits; n++ {
		offset[n+1] = offset[n] + count[n]
		space += uint32(count[n]) << (maxBits - n)
	}
	used := int(offset[maxBits+1])
	if space != 1<<maxBits {
		if used > 1 || used == 1 && count[1] != 1 {
			return false
		}
		fillIncomplete(table[:1<<root], lens, means, used)
		return true
	}
	var sorted [litCodes]uint16 // symbols in order of their codes
	for s, n := range lens {
		if n != 0 {
			sorted[offset[n&15]%litCodes] = uint16(s)
			offset[n&15]++
		}
	}
	fill(table, root, sorted[:used], &count, means)
	return true
}

// fillIncomplete makes a root table of at most one code, which is the bit 0.
func fillIncomplete(table []uint32, lens []uint8, means []uint32, used int) {
	for i := range table {
		table[i] = exceptional
	}
	if used == 0 {
		return
	}
	for s, n := range lens {
		if n != 0 {
			for i := 0; i < len(table); i += 2 {
				table[i] = entry(means[s], 1)
			}
		}
	}
}

// fill makes the tables of a complete code. Codes are taken in order, each a bit-reversed number as it lies in the
// stream. The root table grows with the length of the codes: doubling it repeats what is there for the bit that is new.
func fill(table []uint32, root uint, sorted []uint16, count *[maxBits + 1]uint16, means []uint32) {
	code, n := uint(0), uint(1)
	table[0] = 0
	next := 0
	for ; n <= root; n++ {
		copy(table[1<<(n-1):1<<n], table[:1<<(n-1)])
		for range count[n] {
			table[code] = entry(means[sorted[next]], n)
			next++
			code = following(code, n)
		}
	}
	free := uint(1) << root
	begin, width, prefix := uint(0), uint(0), ^uint(0)
	for ; n <= maxBits; n++ {
		for left := uint(count[n]); left > 0; left-- {
			if p := code & (1<<root - 1); p != prefix {
				prefix, begin = p, free
				width = widthOf(left, n-root, root, count)
				free += 1 << width
				table[prefix] = uint32(begin)<<16 | exceptional | pointer | uint32(width)<<8 | uint32(root)
			}
			e := entry(means[sorted[next]], n-root)
			next++
			for i := code >> root; i < 1<<width; i += 1 << (n - root) {
				table[begin+i] = e
			}
			code = following(code, n)
		}
	}
}

// following returns the code after a code of n bits, bit-reversed: the highest zero becomes one, what is above it zero. After the
// last code of all it is meaningless.
func following(code, n uint) uint {
	zeros := code ^ (1<<n - 1)
	if zeros == 0 {
		return 0
	}
	bit := uint(1) << (bits.Len(zeros) - 1)
	return code&(bit-1) | bit
}

// widthOf returns how many bits index the second table that begins with a code of n bits behind the root, of which there are left
// more: as many as the codes of this and larger lengths need to fill it.
func widthOf(left, n, root uint, count *[maxBits + 1]uint16) uint {
	for left < 1<<n && root+n < maxBits {
		n++
		left = left<<1 + uint(count[root+n])
	}
	return n
}
