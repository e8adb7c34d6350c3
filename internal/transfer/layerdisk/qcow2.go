package layerdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// qcow2, version 3, as docs/interop/qcow2.txt of QEMU has it. All numbers are big-endian.
const (
	clusterBits = 16
	cluster     = 1 << clusterBits
	perTable    = cluster / 8 // entries of a table of the second level
	perCounts   = cluster / 2 // clusters that one block of reference counts covers
	copied      = 1 << 63     // on an entry: no one else refers to the cluster
	headerSize  = 112
	maxBacking  = 1023
)

// file is a qcow2 file that is written from front to back: its clusters first, then the tables, then the header.
type file struct {
	to     io.WriterAt
	next   int64              // the first cluster of the file that is free
	tables map[int64][]uint64 // of the second level, by their place in the first
}

func newFile(to io.WriterAt) *file { return &file{to: to, next: 1, tables: map[int64][]uint64{}} }

// run says that the next clusters of the file hold size bytes of the disk from start, a multiple of the cluster's size.
func (f *file) run(start, size int64) {
	for n := range (size + cluster - 1) / cluster {
		at := start/cluster + n
		table := f.tables[at/perTable]
		if table == nil {
			table = make([]uint64, perTable)
			f.tables[at/perTable] = table
		}
		table[at%perTable] = uint64(f.next)<<clusterBits | copied
		f.next++
	}
}

// put writes one cluster of the disk.
func (f *file) put(at int64, data []byte) error {
	if at%cluster != 0 || len(data) != cluster {
		return fmt.Errorf("%d bytes at %d are no cluster", len(data), at)
	}
	_, err := f.to.WriteAt(data, f.next<<clusterBits)
	f.run(at, cluster)
	return err
}

// finish writes the tables and the header of a disk that lies over the file named below.
func (f *file) finish(size int64, below string) error {
	if len(below) > maxBacking {
		return fmt.Errorf("the name of the file below has %d bytes", len(below))
	}
	entries := (size/cluster + perTable - 1) / perTable
	first := make([]byte, up(entries*8, cluster))
	var errs []error
	for _, at := range slices.Sorted(maps.Keys(f.tables)) {
		binary.BigEndian.PutUint64(first[at*8:], uint64(f.next)<<clusterBits|copied)
		errs = append(errs, f.append(bytesOf(f.tables[at])))
	}
	firstAt := f.next
	errs = append(errs, f.append(first))
	// The counts cover themselves and the table that finds them, which is one cluster for files of up to 16 TiB.
	blocks := int64(1)
	for (f.next+blocks+1+perCounts-1)/perCounts > blocks {
		blocks++
	}
	if blocks > perTable {
		return errors.New("the file is larger than its counts can be found in")
	}
	total := f.next + blocks + 1
	counts := make([]byte, blocks*cluster)
	for n := range total {
		counts[2*n+1] = 1
	}
	finder := make([]uint64, perTable)
	for n := range blocks {
		finder[n] = uint64(f.next+n) << clusterBits
	}
	errs = append(errs, f.append(counts))
	finderAt := f.next
	errs = append(errs, f.append(bytesOf(finder)), f.header(size, below, entries, firstAt, finderAt))
	return errors.Join(errs...)
}

// append writes whole clusters behind all others.
func (f *file) append(data []byte) error {
	_, err := f.to.WriteAt(data, f.next<<clusterBits)
	f.next += int64(len(data)) >> clusterBits
	return err
}

func bytesOf(table []uint64) []byte {
	out := make([]byte, 0, len(table)*8)
	for _, v := range table {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

func (f *file) header(size int64, below string, entries, firstAt, finderAt int64) error {
	h := make([]byte, cluster)
	be := binary.BigEndian
	copy(h, "QFI\xfb")
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], clusterBits)
	be.PutUint64(h[24:], uint64(size))
	be.PutUint32(h[36:], uint32(entries))
	be.PutUint64(h[40:], uint64(firstAt)<<clusterBits)
	be.PutUint64(h[48:], uint64(finderAt)<<clusterBits)
	be.PutUint32(h[56:], 1) // clusters of the table that finds the counts
	be.PutUint32(h[96:], 4) // counts of 1<<4 bits
	be.PutUint32(h[100:], headerSize)
	rest := h[headerSize:]
	if below != "" {
		// The format of the file below is recorded, so that QEMU does not probe it.
		be.PutUint32(rest, 0xe2792aca)
		be.PutUint32(rest[4:], uint32(copy(rest[8:], "qcow2")))
		name := headerSize + 16 + 8 // behind the end of the extensions
		be.PutUint64(h[8:], uint64(name))
		be.PutUint32(h[16:], uint32(copy(h[name:], below)))
	}
	_, err := f.to.WriteAt(h, 0)
	return err
}
