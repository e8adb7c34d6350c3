package formattest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
)

// StreamVMDK builds a streamOptimized VMDK as VMware exports it, which qemu-img does not: each grain behind a marker,
// each table behind its grains, and the directory at the end.
func StreamVMDK(disk []byte) []byte {
	const (
		sector, grain, gtes  = 512, 64 << 10, 512
		table, dir, foot, en = 1, 2, 3, 0
	)
	le := binary.LittleEndian
	header := func(directory uint64) []byte {
		p := make([]byte, sector)
		copy(p, "KDMV")
		le.PutUint32(p[4:], 3)
		le.PutUint32(p[8:], 1|1<<16|1<<17)
		le.PutUint64(p[12:], uint64(len(disk)/sector))
		le.PutUint64(p[20:], grain/sector)
		le.PutUint64(p[28:], 1)
		le.PutUint64(p[36:], 2)
		le.PutUint32(p[44:], gtes)
		le.PutUint64(p[56:], directory)
		le.PutUint64(p[64:], 128)
		copy(p[73:], "\n \r\n\x01")
		return p
	}
	file := header(1<<64 - 1)
	file = put(file, sector, []byte("# Disk DescriptorFile\nversion=1\nCID=7e5b80a7\nparentCID=ffffffff\n"+
		"createType=\"streamOptimized\"\nRDONLY 1 SPARSE \"call-me-stream.vmdk\"\n"))
	file = append(file, make([]byte, 128*sector-len(file))...)
	pad := func() { file = append(file, make([]byte, -len(file)&(sector-1))...) }
	marker := func(kind uint32, sectors uint64) {
		p := make([]byte, sector)
		le.PutUint64(p, sectors)
		le.PutUint32(p[12:], kind)
		file = append(file, p...)
	}
	var directory []byte
	for at := 0; at < len(disk); {
		var entries []byte
		used := false
		for range gtes {
			p := disk[min(at, len(disk)):min(at+grain, len(disk))]
			if zero(p) {
				entries = le.AppendUint32(entries, 0)
			} else {
				used = true
				entries = le.AppendUint32(entries, uint32(len(file)/sector))
				var b bytes.Buffer
				z := zlib.NewWriter(&b)
				_, _ = z.Write(append(append([]byte(nil), p...), make([]byte, grain-len(p))...)) // a bytes.Buffer does not fail
				_ = z.Close()
				file = le.AppendUint64(file, uint64(at/sector))
				file = le.AppendUint32(file, uint32(b.Len()))
				file = append(file, b.Bytes()...)
				pad()
			}
			at += grain
		}
		if !used {
			directory = le.AppendUint32(directory, 0)
			continue
		}
		marker(table, gtes*4/sector)
		directory = le.AppendUint32(directory, uint32(len(file)/sector))
		file = append(file, entries...)
	}
	marker(dir, uint64((len(directory)+sector-1)/sector))
	at := uint64(len(file) / sector)
	file = append(file, directory...)
	pad()
	marker(foot, 1)
	file = append(file, header(at)...)
	marker(en, 0)
	return file
}
