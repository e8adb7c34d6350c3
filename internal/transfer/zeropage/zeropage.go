// Package zeropage finds the zeroes in a disk's bytes, at the one granularity that all of the data plane uses. It does not
// know where the bytes come from or go to.
package zeropage

import "bytes"

// Size is the granularity: the page of the kernel, the block of most filesystems, and what O_DIRECT wants everywhere.
const Size = 4 << 10

var zeroes [64 << 10]byte

// IsZero reports whether p has only zeroes.
func IsZero(p []byte) bool {
	for len(p) > len(zeroes) {
		if !bytes.Equal(p[:len(zeroes)], zeroes[:]) {
			return false
		}
		p = p[len(zeroes):]
	}
	return bytes.Equal(p, zeroes[:len(p)]) // vectorised, and ends at the first difference
}

// Run returns the length of the run at the beginning of p, which lies at off on the disk, whose pages are all zero or all not,
// and which of the two. Pages are counted from the disk's beginning, so that the first and last piece of p may be parts of one.
func Run(p []byte, off int64) (n int, zero bool) {
	end := min(int(Size-off%Size), len(p))
	zero = IsZero(p[:end])
	for n = end; n < len(p); n = end {
		end = min(n+Size, len(p))
		if IsZero(p[n:end]) != zero {
			break
		}
	}
	return n, zero
}
