package formattest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
)

const (
	vmdkSector, vmdkGrain, vmdkGTEs = 512, 64 << 10, 512

	markerEnd, markerTable, markerDirectory, markerFooter = 0, 1, 2, 3
)

// vmdk is a streamOptimized VMDK as it grows.
type vmdk []byte

// StreamVMDK builds a streamOptimized VMDK as VMware exports it, which qemu-img does not: each grain behind a marker,
// each table behind its grains, and the directory at the end.
func StreamVMDK(disk []byte) []byte {
	v := vmdk(vmdkHeader(len(disk), 1<<64-1))
	v = append(v, "# Disk DescriptorFile\nversion=1\nCID=7e5b80a7\nparentCID=ffffffff\n"+
		"createType=\"streamOptimized\"\nRDONLY 1 SPARSE \"call-me-stream.vmdk\"\n"...)
	v = append(v, make([]byte, 128*vmdkSector-len(v))...)
	var directory []byte
	const reach = vmdkGTEs * vmdkGrain
	for at := 0; at < len(disk); at += reach {
		table := v.table(disk, at)
		directory = binary.LittleEndian.AppendUint32(directory, table)
	}
	v.marker(markerDirectory, uint64((len(directory)+vmdkSector-1)/vmdkSector))
	at := uint64(len(v) / vmdkSector)
	v = append(v, directory...)
	v.pad()
	v.marker(markerFooter, 1)
	v = append(v, vmdkHeader(len(disk), at)...)
	v.marker(markerEnd, 0)
	return v
}

func vmdkHeader(size int, directory uint64) []byte {
	le := binary.LittleEndian
	p := make([]byte, vmdkSector)
	copy(p, "KDMV")
	le.PutUint32(p[4:], 3)
	le.PutUint32(p[8:], 1|1<<16|1<<17)
	le.PutUint64(p[12:], uint64(size/vmdkSector))
	le.PutUint64(p[20:], vmdkGrain/vmdkSector)
	le.PutUint64(p[28:], 1)
	le.PutUint64(p[36:], 2)
	le.PutUint32(p[44:], vmdkGTEs)
	le.PutUint64(p[56:], directory)
	le.PutUint64(p[64:], 128)
	copy(p[73:], "\n \r\n\x01")
	return p
}

func (v *vmdk) pad() { *v = append(*v, make([]byte, -len(*v)&(vmdkSector-1))...) }

func (v *vmdk) marker(kind uint32, sectors uint64) {
	p := make([]byte, vmdkSector)
	binary.LittleEndian.PutUint64(p, sectors)
	binary.LittleEndian.PutUint32(p[12:], kind)
	*v = append(*v, p...)
}

// table adds the grains of the disk from at on and their table, and returns the table's sector, 0 if it has no grain.
func (v *vmdk) table(disk []byte, at int) uint32 {
	var entries []byte
	used := false
	for range vmdkGTEs {
		p := disk[min(at, len(disk)):min(at+vmdkGrain, len(disk))]
		var sector uint32
		if !zero(p) {
			sector, used = v.grain(p, at), true
		}
		entries = binary.LittleEndian.AppendUint32(entries, sector)
		at += vmdkGrain
	}
	if !used {
		return 0
	}
	v.marker(markerTable, vmdkGTEs*4/vmdkSector)
	sector := uint32(len(*v) / vmdkSector)
	*v = append(*v, entries...)
	return sector
}

// grain adds a grain and returns its sector.
func (v *vmdk) grain(p []byte, at int) uint32 {
	sector := uint32(len(*v) / vmdkSector)
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(append(bytes.Clone(p), make([]byte, vmdkGrain-len(p))...)) // a bytes.Buffer does not fail
	_ = z.Close()
	*v = binary.LittleEndian.AppendUint64(*v, uint64(at/vmdkSector))
	*v = binary.LittleEndian.AppendUint32(*v, uint32(b.Len()))
	*v = append(*v, b.Bytes()...)
	v.pad()
	return sector
}
