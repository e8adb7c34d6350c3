package decode

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"hash/crc64"
)

// pageZero is a page of zeroes, the most common page of a disk.
var pageZero [4096]byte

// zeroes updates a CRC by 4 KiB of zeroes. CRCs are linear, so it is one table lookup per byte of the CRC, many times faster than
// processing the zeroes for a CRC64, for which there is no instruction.
type zeroes struct {
	table [8][256]uint64
	none  uint64 // what they do to a CRC of 0
}

// newZeroes makes the tables for update, which runs a CRC of so many bytes over data.
func newZeroes(size int, update func(crc uint64, p []byte) uint64) *zeroes {
	z := &zeroes{none: update(0, pageZero[:])}
	for i := range size {
		for bit := range 8 {
			effect := update(1<<(8*i+bit), pageZero[:]) ^ z.none
			for b := range 1 << bit {
				z.table[i][1<<bit|b] = effect ^ z.table[i][b]
			}
		}
	}
	return z
}

func (z *zeroes) after(crc uint64) uint64 {
	t := &z.table
	return z.none ^ t[0][byte(crc)] ^ t[1][byte(crc>>8)] ^ t[2][byte(crc>>16)] ^ t[3][byte(crc>>24)] ^
		t[4][byte(crc>>32)] ^ t[5][byte(crc>>40)] ^ t[6][byte(crc>>48)] ^ t[7][byte(crc>>56)]
}

var (
	ecma      = crc64.MakeTable(crc64.ECMA)
	ecmaZeros = newZeroes(8, func(crc uint64, p []byte) uint64 { return crc64.Update(crc, ecma, p) })
)

// sum64 is crc64.Update for data that is zeroes for the most part.
func sum64(crc uint64, p []byte) uint64 {
	for len(p) >= len(pageZero) {
		n := 0 // of whole pages that are not zero
		for n+len(pageZero) <= len(p) && !bytes.Equal(p[n:n+len(pageZero)], pageZero[:]) {
			n += len(pageZero)
		}
		crc = crc64.Update(crc, ecma, p[:n])
		p = p[n:]
		for len(p) >= len(pageZero) && bytes.Equal(p[:len(pageZero)], pageZero[:]) {
			crc = ecmaZeros.after(crc)
			p = p[len(pageZero):]
		}
	}
	return crc64.Update(crc, ecma, p)
}

// check is one of the checksums an xz block may have.
type check byte

const (
	checkNone   check = 0
	checkCRC32  check = 1
	checkCRC64  check = 4
	checkSHA256 check = 10
)

// size returns the length of the check in bytes, -1 if its kind is unknown.
func (c check) size() int {
	switch c {
	case checkNone:
		return 0
	case checkCRC32:
		return 4
	case checkCRC64:
		return 8
	case checkSHA256:
		return sha256.Size
	}
	return -1
}

// digest runs a check over data.
type digest struct {
	check check
	crc   uint64
	sha   hash.Hash
}

func newDigest(c check) *digest {
	d := &digest{check: c}
	if c == checkSHA256 {
		d.sha = sha256.New()
	}
	return d
}

func (d *digest) write(p []byte) {
	switch d.check {
	case checkCRC32:
		d.crc = uint64(crc32.Update(uint32(d.crc), crc32.IEEETable, p))
	case checkCRC64:
		d.crc = sum64(d.crc, p)
	case checkSHA256:
		d.sha.Write(p)
	case checkNone:
	}
}

func (d *digest) sum() []byte {
	switch d.check {
	case checkCRC32:
		return binary.LittleEndian.AppendUint32(nil, uint32(d.crc))
	case checkCRC64:
		return binary.LittleEndian.AppendUint64(nil, d.crc)
	case checkSHA256:
		return d.sha.Sum(nil)
	case checkNone:
	}
	return nil
}
