package formattest

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
)

// QCOW2 builds images QEMU would never make. Zero fields get sensible values; whatever is set is written as it is.
type QCOW2 struct {
	Version      uint32 // 3
	ClusterBits  uint32 // 9
	Size         uint64 // 64 KiB
	L1Entries    uint32 // as many as Size needs
	L1Offset     uint64 // cluster 1
	Backing      string
	DataFile     string
	Encryption   uint32
	Incompatible uint64
	Compression  byte
	HeaderLength uint32 // 112
	L1           []uint64
	Clusters     map[uint64][]byte // by the cluster's number
}

// Bytes returns the file.
func (q QCOW2) Bytes() []byte {
	be := binary.BigEndian
	set(&q.Version, 3)
	set(&q.ClusterBits, 9)
	set(&q.Size, 64<<10)
	bits := min(q.ClusterBits, 21)
	cluster := uint64(1) << bits
	set(&q.L1Offset, cluster)
	reach := cluster / 8 << bits
	set(&q.L1Entries, uint32((q.Size+reach-1)/reach))
	set(&q.HeaderLength, 112)
	head := make([]byte, cluster)
	copy(head, "QFI\xfb")
	be.PutUint32(head[4:], q.Version)
	be.PutUint32(head[20:], q.ClusterBits)
	be.PutUint64(head[24:], q.Size)
	be.PutUint32(head[32:], q.Encryption)
	be.PutUint32(head[36:], q.L1Entries)
	be.PutUint64(head[40:], q.L1Offset)
	if q.Version >= 3 {
		be.PutUint64(head[72:], q.Incompatible)
		be.PutUint32(head[96:], 4)
		be.PutUint32(head[100:], q.HeaderLength)
		head[104] = q.Compression
	}
	if q.DataFile != "" {
		be.PutUint32(head[112:], 0x44415441)
		be.PutUint32(head[116:], uint32(len(q.DataFile)))
		copy(head[120:], q.DataFile)
	}
	if q.Backing != "" {
		be.PutUint64(head[8:], 256)
		be.PutUint32(head[16:], uint32(len(q.Backing)))
		copy(head[256:], q.Backing)
	}
	file := append([]byte(nil), head...)
	file = put(file, cluster, Words(q.L1...))
	for at, p := range q.Clusters {
		file = put(file, at*cluster, p)
	}
	return append(file, make([]byte, -uint64(len(file))%cluster)...)
}

// set gives v a value if it has none.
func set[T uint32 | uint64](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// put writes p into file at off, which grows as needed.
func put(file []byte, off uint64, p []byte) []byte {
	if need := off + uint64(len(p)); need > uint64(len(file)) {
		file = append(file, make([]byte, need-uint64(len(file)))...)
	}
	copy(file[off:], p)
	return file
}

// Words are numbers as qcow2 keeps them.
func Words(v ...uint64) []byte {
	var p []byte
	for _, n := range v {
		p = binary.BigEndian.AppendUint64(p, n)
	}
	return p
}

// Deflated is p as a bare deflate stream.
func Deflated(p []byte) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	_, _ = w.Write(p) // a bytes.Buffer does not fail
	_ = w.Close()
	return b.Bytes()
}
