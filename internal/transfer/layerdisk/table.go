package layerdisk

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unicode/utf16"
)

// The GUID partition table of UEFI: a header and 128 entries behind the first sector, and once more at the end of the disk.
const (
	sector    = 512
	maxParts  = 128
	partSize  = 128
	tableSize = maxParts * partSize
	maxLabel  = 36 // characters of a partition's name
)

// linuxData is the type of a partition with a filesystem of Linux, as it lies on the disk.
var linuxData = [16]byte{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4}

// table returns the first and the last cluster of the disk.
func (d Disk) table() (front, back []byte, err error) {
	entries := make([]byte, tableSize)
	le := binary.LittleEndian
	for i, p := range d.Parts {
		e := entries[i*partSize:]
		copy(e, linuxData[:])
		id := guid(fmt.Sprintf("%s %d %d", p.Name, p.Start, p.Size))
		copy(e[16:], id[:])
		le.PutUint64(e[32:], uint64(p.Start/sector))
		le.PutUint64(e[40:], uint64((p.Start+p.Size)/sector)-1)
		label := utf16.Encode([]rune(p.Name))
		if len(label) > maxLabel {
			return nil, nil, fmt.Errorf("the partition's name %q is too long", p.Name)
		}
		for j, c := range label {
			le.PutUint16(e[56+2*j:], c)
		}
	}
	last := d.Size/sector - 1
	front, back = make([]byte, cluster), make([]byte, cluster)
	protect(front, last)
	copy(front[2*sector:], entries)
	copy(front[sector:], d.header(entries, 1, last, 2))
	// The entries are in front of the header there.
	copy(back[cluster-sector-tableSize:], entries)
	copy(back[cluster-sector:], d.header(entries, last, 1, last-tableSize/sector))
	return front, back, nil
}

// header returns that of the table at a sector, whose twin is at another.
func (d Disk) header(entries []byte, own, twin, at int64) []byte {
	const size = 92
	h := make([]byte, sector)
	le := binary.LittleEndian
	copy(h, "EFI PART")
	le.PutUint32(h[8:], 1<<16)
	le.PutUint32(h[12:], size)
	le.PutUint64(h[24:], uint64(own))
	le.PutUint64(h[32:], uint64(twin))
	le.PutUint64(h[40:], uint64(2+tableSize/sector))
	le.PutUint64(h[48:], uint64(d.Size/sector-2-tableSize/sector))
	id := guid(fmt.Sprint(d.Parts))
	copy(h[56:], id[:])
	le.PutUint64(h[72:], uint64(at))
	le.PutUint32(h[80:], maxParts)
	le.PutUint32(h[84:], partSize)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:size]))
	return h
}

// protect writes the old table that tells programs which do not know the new one that the disk is in use.
func protect(front []byte, last int64) {
	le := binary.LittleEndian
	e := front[446:]
	e[2], e[4], e[5], e[6], e[7] = 0x02, 0xee, 0xff, 0xff, 0xff
	le.PutUint32(e[8:], 1)
	le.PutUint32(e[12:], uint32(min(last, 0xffffffff)))
	front[510], front[511] = 0x55, 0xaa
}

// guid returns an identifier that is derived from a text, so that it need not be stored.
func guid(text string) [16]byte {
	h := sha256.Sum256([]byte(text))
	var out [16]byte
	copy(out[:], h[:])
	out[7], out[8] = out[7]&0x0f|0x80, out[8]&0x3f|0x80 // version 8 (custom), variant 1; the first three fields are little-endian
	return out
}
