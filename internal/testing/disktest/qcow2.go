package disktest

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

const clusterSize = 64 << 10

// QCOW2 makes an image of disk. The order of its clusters in the file is shuffled by seed; with late set, the tables come
// after all data, which a stream cannot place when it comes. Compressed clusters lie anywhere, as qemu-img packs them.
func QCOW2(t testing.TB, disk []byte, seed uint64, compressed, late bool) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // a test that fails must fail again
	clusters := (len(disk) + clusterSize - 1) / clusterSize
	const perTable = clusterSize / 8
	tables := (clusters + perTable - 1) / perTable
	file := make([]byte, clusterSize) // the header's cluster
	space := func(n int) int {
		at := len(file)
		file = append(file, make([]byte, n)...)
		return at
	}
	align := func() { space(-len(file) & (clusterSize - 1)) }
	var l1, l2 int
	if !late {
		l1, l2 = space(clusterSize), space(tables*clusterSize)
	}
	entries := make([]uint64, tables*perTable)
	for _, c := range rng.Perm(clusters) {
		p := make([]byte, clusterSize)
		copy(p, disk[c*clusterSize:])
		if zeropage.IsZero(p) {
			continue
		}
		var packed []byte
		if compressed {
			packed = deflate(t, p)
		}
		if compressed && len(packed) < clusterSize {
			at := space(len(packed))
			copy(file[at:], packed)
			sectors := (at+len(packed)+511)/512 - at/512 - 1
			entries[c] = 1<<62 | uint64(sectors)<<54 | uint64(at)
			continue
		}
		align()
		at := space(clusterSize)
		copy(file[at:], p)
		entries[c] = 1<<63 | uint64(at)
	}
	align()
	if late {
		l2 = space(tables * clusterSize)
		l1 = space(clusterSize)
	}
	for i, e := range entries {
		binary.BigEndian.PutUint64(file[l2+i*8:], e)
	}
	for i := range tables {
		binary.BigEndian.PutUint64(file[l1+i*8:], 1<<63|uint64(l2+i*clusterSize))
	}
	refcounts := space(2 * clusterSize)
	binary.BigEndian.PutUint64(file[refcounts:], uint64(refcounts+clusterSize))
	putHeader(file, map[int]uint32{4: 3, 20: 16, 36: uint32(tables), 56: 1, 96: 4, 100: 104},
		map[int]uint64{24: uint64(len(disk)), 40: uint64(l1), 48: uint64(refcounts)})
	return file
}

// putHeader writes the fields of the header, each by its offset.
func putHeader(file []byte, numbers map[int]uint32, places map[int]uint64) {
	copy(file, "QFI\xfb")
	for at, v := range numbers {
		binary.BigEndian.PutUint32(file[at:], v)
	}
	for at, v := range places {
		binary.BigEndian.PutUint64(file[at:], v)
	}
}

func deflate(t testing.TB, p []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(p)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
