package qcow2

import (
	"encoding/binary"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

const (
	offsetMask     = 0x00fffffffffffe00
	compressedFlag = 1 << 62
	zeroFlag       = 1 << 0
)

// l1 goes through a piece of the L1 table that begins at byte at of it and calls do with every L2 table it names and
// the part of the disk that one describes.
func (h *header) l1(at int64, p []byte, do func(table, guest int64) error) error {
	for ; len(p) >= 8; p, at = p[8:], at+8 {
		table := int64(binary.BigEndian.Uint64(p) & offsetMask)
		if table == 0 {
			continue
		}
		if table&(h.cluster()-1) != 0 {
			return task.Errorf(task.BadImage, "qcow2 L1 entry %d puts an L2 table at byte %d, which is no multiple of the cluster size %d",
				at/8, table, h.cluster())
		}
		if err := do(table, at/8*h.reach()); err != nil {
			return err
		}
	}
	return nil
}

// parts receives the ranges in the tables: those with data in the file, and those that read as zeroes whatever an image below has.
// Other ranges are not reported.
type parts struct {
	data func(extent.Extent) error
	zero func(at, n int64) error // nil: it does not matter
}

func (p parts) zeroes(at, n int64) error {
	if p.zero == nil || n <= 0 {
		return nil
	}
	return p.zero(at, n)
}

// l2 goes through a piece of the L2 table that describes the disk from guest on.
func (h *header) l2(guest int64, p []byte, emit parts) error {
	size := int(h.entrySize())
	for ; len(p) >= size && guest < h.disk; p, guest = p[size:], guest+h.cluster() {
		entry := binary.BigEndian.Uint64(p)
		var err error
		switch {
		case entry&compressedFlag != 0:
			err = emit.data(h.compressed(entry, guest))
		case h.extended:
			err = h.subclusters(entry, binary.BigEndian.Uint64(p[8:]), guest, emit)
		default:
			err = h.plain(entry, guest, emit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compressed decodes the entry of a compressed cluster. Its offset is in bytes and its length in sectors; the first and last
// sector may be shared with neighbours.
func (h *header) compressed(entry uint64, guest int64) extent.Extent {
	shift := 62 - (h.clusterBits - 8)
	host := int64(entry & (1<<shift - 1))
	sectors := int64(entry>>shift&(1<<(h.clusterBits-8)-1)) + 1
	return extent.Extent{
		Host: host, Stored: sectors*512 - host%512, Guest: guest,
		Size: min(h.cluster(), h.disk-guest), Coding: h.coding,
	}
}

func (h *header) plain(entry uint64, guest int64, emit parts) error {
	n := min(h.cluster(), h.disk-guest)
	if entry&zeroFlag != 0 {
		if h.version < 3 {
			return task.Errorf(task.BadImage, "qcow2 version 2 has a zero cluster at byte %d of the disk, only version 3 has those", guest)
		}
		return emit.zeroes(guest, n)
	}
	host, err := h.host(entry, guest)
	if err != nil || host == 0 {
		return err
	}
	return emit.data(extent.Extent{Host: host, Stored: n, Guest: guest, Size: n})
}

func (h *header) host(entry uint64, guest int64) (int64, error) {
	host := int64(entry & offsetMask)
	if host&(h.cluster()-1) != 0 {
		return 0, task.Errorf(task.BadImage, "qcow2 L2 entry for byte %d of the disk points at byte %d, which is no multiple of the "+
			"cluster size %d", guest, host, h.cluster())
	}
	return host, nil
}

// subclusters emits the runs of a cluster's 32 parts that are allocated or read as zeroes. The low half of bitmap says which are
// allocated, the high half which read as zeroes.
func (h *header) subclusters(entry, bitmap uint64, guest int64, emit parts) error {
	host, err := h.host(entry, guest)
	if err != nil {
		return err
	}
	allocated, zero := uint32(bitmap), uint32(bitmap>>32)
	if allocated&zero != 0 || host == 0 && allocated != 0 {
		return task.Errorf(task.BadImage, "qcow2 L2 entry for byte %d of the disk has subclusters that contradict each other "+
			"(allocated %#x, zero %#x, cluster at byte %d)", guest, allocated, zero, host)
	}
	part := h.cluster() / 32
	return errors.Join(runs(allocated, func(first, count int64) error {
		at := guest + first*part
		n := min(count*part, h.disk-at)
		if n <= 0 {
			return nil
		}
		return emit.data(extent.Extent{Host: host + first*part, Stored: n, Guest: at, Size: n})
	}), runs(zero, func(first, count int64) error {
		return emit.zeroes(guest+first*part, min(count*part, h.disk-guest-first*part))
	}))
}

// runs calls do with each run of bits that are set, until it returns an error.
func runs(set uint32, do func(first, count int64) error) error {
	for i := int64(0); i < 32; i++ {
		first := i
		for i < 32 && set>>i&1 != 0 {
			i++
		}
		if i == first {
			continue
		}
		if err := do(first, i-first); err != nil {
			return err
		}
	}
	return nil
}
