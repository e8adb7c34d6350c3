package transfer

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

const testCluster = 64 << 10

// qcow2 makes an image of disk. The order of its clusters in the file is shuffled by seed; with late set, the tables come
// after all data, which a stream cannot place when it comes. Compressed clusters lie anywhere, as qemu-img packs them.
func qcow2(t testing.TB, disk []byte, seed uint64, compressed, late bool) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 9))
	clusters := (len(disk) + testCluster - 1) / testCluster
	const perTable = testCluster / 8
	tables := (clusters + perTable - 1) / perTable
	file := make([]byte, testCluster) // the header's cluster
	space := func(n int) int {
		at := len(file)
		file = append(file, make([]byte, n)...)
		return at
	}
	align := func() { space(-len(file) & (testCluster - 1)) }
	var l1, l2 int
	if !late {
		l1, l2 = space(testCluster), space(tables*testCluster)
	}
	entries := make([]uint64, tables*perTable)
	for _, c := range rng.Perm(clusters) {
		p := make([]byte, testCluster)
		copy(p, disk[c*testCluster:])
		if zeropage.IsZero(p) {
			continue
		}
		var b bytes.Buffer
		if compressed {
			w, _ := flate.NewWriter(&b, 1)
			w.Write(p)
			w.Close()
		}
		if compressed && b.Len() < testCluster {
			at := space(b.Len())
			copy(file[at:], b.Bytes())
			sectors := (at+b.Len()+511)/512 - at/512 - 1
			entries[c] = 1<<62 | uint64(sectors)<<54 | uint64(at)
			continue
		}
		align()
		at := space(testCluster)
		copy(file[at:], p)
		entries[c] = 1<<63 | uint64(at)
	}
	align()
	if late {
		l2 = space(tables * testCluster)
		l1 = space(testCluster)
	}
	for i, e := range entries {
		binary.BigEndian.PutUint64(file[l2+i*8:], e)
	}
	for i := range tables {
		binary.BigEndian.PutUint64(file[l1+i*8:], 1<<63|uint64(l2+i*testCluster))
	}
	refcounts := space(2 * testCluster)
	binary.BigEndian.PutUint64(file[refcounts:], uint64(refcounts+testCluster))
	copy(file, "QFI\xfb")
	for off, v := range map[int]uint32{4: 3, 20: 16, 36: uint32(tables), 56: 1, 96: 4, 100: 104} {
		binary.BigEndian.PutUint32(file[off:], v)
	}
	for off, v := range map[int]uint64{24: uint64(len(disk)), 40: uint64(l1), 48: uint64(refcounts)} {
		binary.BigEndian.PutUint64(file[off:], v)
	}
	return file
}

// text returns a disk whose content compresses to about a third.
func text(n int, seed uint64) []byte {
	p := noise(n, seed)
	for q := p; len(q) >= 8; q = q[8:] {
		if w := binary.LittleEndian.Uint64(q); w != 0 {
			binary.LittleEndian.PutUint64(q, w&0x0707070707070707+0x6161616161616161)
		}
	}
	return p
}
