package encode

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"sort"
)

// The image has clusters of 64 KiB, as qemu-img makes them, in this order: the header, the table of reference counts and its blocks,
// the L1 table, an L2 table for every 512 MiB of the disk in which there is data, and the data in the order of the disk. All of it
// but the data is known as soon as it is known which clusters hold data; so the size is known before the first byte, any range can be
// read at any time, and twice the same.
const (
	clusterBits = 16
	cluster     = 1 << clusterBits
	entries     = cluster / 8                   // of a table of offsets
	counts      = cluster / 2                   // reference counts of 16 bits in a block
	copied      = 1 << 63                       // the flag of a cluster that is used once
	perL2       = int64(entries) << clusterBits // bytes of the disk that one L2 table is for
	readsZero   = 1                             // the entry of a cluster that reads as zeroes
	headerSize  = 104
	// formatOfBelow is the type of the header's extension with the format of the image below.
	formatOfBelow = 0xe2792aca
	nameAt        = 256  // of the image below, in the header
	maxName       = 1023 // bytes of it, as QEMU takes them
	sector        = 512
)

// Image is a disk as a qcow2 image of version 3.
type Image struct {
	disk Disk

	used  []uint64 // a bit for each cluster of the disk with data in the image
	zero  []uint64 // a bit for each that reads as zeroes, whatever the image below has; nil: there is none below
	ranks []uint32 // for each word of used, how many bits are set before it
	l2    []int64  // which L2 tables there are, by the index in L1

	// where each part begins, in clusters
	countTable, countBlocks, l1, l2At, data, end int64
	l1Size                                       int64 // entries
}

// QCOW2 looks where the disk has data, and where it changed if the image is an increment.
func QCOW2(ctx context.Context, d Disk) (*Image, error) {
	if d.Below != nil && len(d.Below.Name) > maxName {
		return nil, fmt.Errorf("the name of the image below has %d bytes, at most %d are possible", len(d.Below.Name), maxName)
	}
	i := &Image{disk: d, l1Size: max(1, (d.Size+perL2-1)/perL2)}
	var err error
	if i.used, err = clusters(ctx, d.Size, d.Data); err != nil {
		return nil, fmt.Errorf("look where the disk has data: %w", err)
	}
	if d.Below != nil {
		changed, err := clusters(ctx, d.Size, d.Below.Changed)
		if err != nil {
			return nil, fmt.Errorf("look where the disk changed: %w", err)
		}
		i.zero = make([]uint64, len(changed))
		for w := range changed {
			i.zero[w] = changed[w] &^ i.used[w]
			i.used[w] &= changed[w]
		}
	}
	i.count()
	i.place()
	return i, nil
}

// clusters sets a bit for each cluster that one of the extents touches.
func clusters(ctx context.Context, size int64, extents func(ctx context.Context, from, to int64) ([][2]int64, error)) ([]uint64, error) {
	in := make([]uint64, ((size+cluster-1)/cluster+63)/64)
	for from := int64(0); from < size; from += window {
		some, err := extents(ctx, from, min(size, from+window))
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			for c := e[0] / cluster; c*cluster < e[0]+e[1]; c++ {
				in[c/64] |= 1 << (c % 64)
			}
		}
	}
	return in, nil
}

// count fills what is looked up in.
func (i *Image) count() {
	i.ranks = make([]uint32, len(i.used)+1)
	const words = entries / 64 // of used, for one L2 table
	for w, word := range i.used {
		n := bits.OnesCount64(word)
		i.ranks[w+1] = i.ranks[w] + uint32(n) // 2^32 clusters are 256 TiB
		if table := int64(w / words); (n > 0 || i.zero != nil && i.zero[w] != 0) && (len(i.l2) == 0 || i.l2[len(i.l2)-1] != table) {
			i.l2 = append(i.l2, table)
		}
	}
}

// place finds where each part is. Reference counts count their own blocks too, so that is tried until it fits.
func (i *Image) place() {
	l1 := (i.l1Size*8 + cluster - 1) / cluster
	data := int64(i.ranks[len(i.used)])
	for blocks := int64(1); ; blocks++ {
		table := (blocks*8 + cluster - 1) / cluster
		i.countTable, i.countBlocks = 1, 1+table
		i.l1 = i.countBlocks + blocks
		i.l2At = i.l1 + l1
		i.data = i.l2At + int64(len(i.l2))
		i.end = i.data + data
		needed := (i.end + counts - 1) / counts
		if needed <= blocks {
			return
		}
		blocks = max(blocks, needed-1)
	}
}

// Size returns how large the image is.
func (i *Image) Size() int64 { return i.end * cluster }

// ReadAt implements io.ReaderAt.
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		at := off + int64(done)
		if at >= i.Size() {
			return done, io.EOF
		}
		n, err := i.read(p[done:], at)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// read reads some bytes, at least one.
func (i *Image) read(p []byte, off int64) (int, error) {
	c, within := off/cluster, off%cluster
	if c >= i.data {
		return i.readData(p, c-i.data, within)
	}
	var page [cluster]byte
	switch {
	case c == 0:
		i.header(page[:])
	case c < i.countBlocks:
		i.table(page[:], c-i.countTable, i.l1-i.countBlocks, func(n int64) uint64 { return uint64(i.countBlocks+n) * cluster })
	case c < i.l1:
		for n := range int64(counts) {
			if (c-i.countBlocks)*counts+n < i.end {
				binary.BigEndian.PutUint16(page[2*n:], 1)
			}
		}
	case c < i.l2At:
		i.table(page[:], c-i.l1, i.l1Size, i.l1Entry)
	default:
		first := i.l2[c-i.l2At] * entries
		i.table(page[:], 0, entries, func(n int64) uint64 { return i.l2Entry(first + n) })
	}
	return copy(p, page[within:]), nil
}

// table writes the page-th cluster of a table with so many entries.
func (i *Image) table(page []byte, which, size int64, entry func(int64) uint64) {
	for n := range min(int64(entries), size-which*entries) {
		binary.BigEndian.PutUint64(page[8*n:], entry(which*entries+n))
	}
}

func (i *Image) l1Entry(n int64) uint64 {
	at := sort.Search(len(i.l2), func(k int) bool { return i.l2[k] >= n })
	if at == len(i.l2) || i.l2[at] != n {
		return 0
	}
	return uint64(i.l2At+int64(at))*cluster | copied
}

func (i *Image) l2Entry(c int64) uint64 {
	switch {
	case c/64 >= int64(len(i.used)):
		return 0
	case i.zero != nil && i.zero[c/64]>>(c%64)&1 != 0:
		return readsZero
	case i.used[c/64]>>(c%64)&1 == 0:
		return 0
	}
	before := int64(i.ranks[c/64]) + int64(bits.OnesCount64(i.used[c/64]&(1<<(c%64)-1)))
	return uint64(i.data+before)*cluster | copied
}

func (i *Image) header(page []byte) {
	be := binary.BigEndian
	copy(page, "QFI\xfb")
	be.PutUint32(page[4:], 3)
	be.PutUint32(page[20:], clusterBits)
	be.PutUint64(page[24:], uint64((i.disk.Size+sector-1)/sector*sector)) // a disk has whole sectors
	be.PutUint32(page[36:], uint32(i.l1Size))                             // see count
	be.PutUint64(page[40:], uint64(i.l1)*cluster)
	be.PutUint64(page[48:], uint64(i.countTable)*cluster)
	be.PutUint32(page[56:], uint32(i.countBlocks-i.countTable)) // a few
	be.PutUint32(page[96:], 4)                                  // reference counts have 1<<4 bits
	be.PutUint32(page[100:], headerSize)
	if b := i.disk.Below; b != nil {
		ext := page[headerSize:]
		be.PutUint32(ext, formatOfBelow)
		be.PutUint32(ext[4:], uint32(copy(ext[8:], "qcow2")))
		// An extension takes whole words; one of type 0 is the last. The name may be anywhere in the cluster.
		be.PutUint64(page[8:], nameAt)
		be.PutUint32(page[16:], uint32(copy(page[nameAt:], b.Name)))
	}
}

// readData reads from the n-th cluster with data on, up to the next gap between the disk's clusters.
func (i *Image) readData(p []byte, n, within int64) (int, error) {
	word := sort.Search(len(i.used), func(w int) bool { return int64(i.ranks[w+1]) > n })
	rest := i.used[word]
	for range n - int64(i.ranks[word]) {
		rest &= rest - 1
	}
	c := int64(word)*64 + int64(bits.TrailingZeros64(rest))
	run := int64(1)
	for run*cluster-within < int64(len(p)) {
		next := c + run
		if next/64 >= int64(len(i.used)) || i.used[next/64]>>(next%64)&1 == 0 {
			break
		}
		run++
	}
	p = p[:min(int64(len(p)), run*cluster-within)]
	at := c*cluster + within
	inside := p[:max(0, min(int64(len(p)), i.disk.Size-at))]
	clear(p[len(inside):]) // the last cluster of a disk may be more than is left of it
	if len(inside) > 0 {
		if _, err := io.ReadFull(io.NewSectionReader(i.disk, at, int64(len(inside))), inside); err != nil {
			return 0, fmt.Errorf("read the disk at %d: %w", at, err)
		}
	}
	return len(p), nil
}
