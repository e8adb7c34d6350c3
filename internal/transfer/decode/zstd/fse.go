package zstd

import "math/bits"

// An entry of a table says what a state means and where to go from it: the base of the next state in bits 0-15, how many
// bits to add to it in bits 16-23, how many extra bits the value has in bits 24-31, and the value's base in bits 32-63.
type entry uint64

const maxLog = 9

// table is the decoding table of one of the three parts of a sequence.
type table struct {
	log     uint
	entries [1 << maxLog]entry
}

// code is what a symbol means: a base and a number of extra bits.
type code struct {
	base uint32
	bits uint8
}

var (
	llCodes = codes(0, 16, []uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	mlCodes = codes(3, 32, []uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	ofCodes = offsetCodes()
)

// codes makes plain ones that begin at first, and then those with extra bits. Each begins where the one before ends.
func codes(first uint32, plain int, extra []uint8) (c []code) {
	for i := range plain {
		c = append(c, code{first + uint32(i), 0})
	}
	next := first + uint32(plain)
	for _, n := range extra {
		c = append(c, code{next, n})
		next += 1 << n
	}
	return c
}

func offsetCodes() (c []code) {
	for i := range 32 {
		c = append(c, code{1 << i, uint8(i)})
	}
	return c
}

// Tables for blocks that bring none.
var (
	llDefault = defaultTable(6, llCodes, []int16{
		4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
	})
	mlDefault = defaultTable(6, mlCodes, []int16{
		1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
	})
	ofDefault = defaultTable(5, ofCodes, []int16{
		1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
	})
)

func defaultTable(log uint, c []code, counts []int16) *table {
	var t table
	t.fill(log, c, counts)
	return &t
}

// fill makes the table for counts, which add up to 1<<log; -1 is a count of less than one.
func (t *table) fill(log uint, c []code, counts []int16) {
	var symbols [1 << maxLog]uint8
	var next [256]uint16
	spread(symbols[:1<<log], next[:], counts)
	t.log = log
	for i, s := range symbols[:1<<log] {
		state := next[s]
		next[s]++
		n := log + 1 - uint(bits.Len16(state))
		t.entries[i] = entry(uint64(state)<<n-1<<log) | entry(n)<<16 | entry(c[s].bits)<<24 | entry(c[s].base)<<32
	}
}

// spread puts symbols into their places and says at which state each begins.
func spread(symbols []uint8, next []uint16, counts []int16) {
	high := len(symbols) - 1
	for s, n := range counts {
		if n == -1 {
			symbols[high] = uint8(s)
			high--
			next[s] = 1
		} else {
			next[s] = uint16(n)
		}
	}
	mask, step, pos := len(symbols)-1, len(symbols)>>1+len(symbols)>>3+3, 0
	for s, n := range counts {
		for range max(n, 0) {
			symbols[pos] = uint8(s)
			for pos = (pos + step) & mask; pos > high; {
				pos = (pos + step) & mask
			}
		}
	}
}

// single makes the table of one symbol that is always meant.
func (t *table) single(c code) {
	t.log = 0
	t.entries[0] = entry(c.bits)<<24 | entry(c.base)<<32
}

// readCounts reads the description of a table with at most symbols symbols, and says how long it is.
func readCounts(src []byte, symbols int, most uint, counts *[256]int16) (log uint, n, size int, ok bool) {
	f := forward{src: src}
	log = f.peek(4) + 5
	f.pos = 4
	if log > most {
		return 0, 0, 0, false
	}
	left := 1<<log + 1 // of the sum, plus one
	for left > 1 {
		if n >= symbols {
			return 0, 0, 0, false
		}
		width := uint(bits.Len(uint(left)))
		v := int(f.peek(width))
		// Values that need not all the bits have one less: low is how many there are.
		low := 1<<width - 1 - left
		if v&(1<<(width-1)-1) < low {
			v &= 1<<(width-1) - 1
			f.pos += width - 1
		} else {
			if v >= 1<<(width-1) {
				v -= low
			}
			f.pos += width
		}
		count := v - 1
		counts[n] = int16(count)
		n++
		left -= max(count, -count)
		if count == 0 {
			for {
				more := int(f.peek(2))
				f.pos += 2
				if n+more > symbols {
					return 0, 0, 0, false
				}
				for range more {
					counts[n] = 0
					n++
				}
				if more < 3 {
					break
				}
			}
		}
	}
	size, ok = f.size()
	return log, n, size, ok && left == 1
}
