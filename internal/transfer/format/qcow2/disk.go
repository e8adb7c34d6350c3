package qcow2

import (
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Disk is an image that is asked about places of its disk, and reads of its tables what the answer needs.
type Disk struct {
	h *header
	f extent.File
}

// OpenDisk reads the header.
func OpenDisk(f extent.File) (*Disk, error) {
	l, err := openAs(f, parse)
	if err != nil {
		return nil, err
	}
	return &Disk{h: l.h, f: f}, nil
}

// Size returns the size of the disk.
func (d *Disk) Size() int64 { return d.h.disk }

// In returns the extents that have bytes of [from, to) of the disk, in its order. Plain ones are cut to it and come as one where they
// follow each other, coded ones are whole.
func (d *Disk) In(from, to int64) ([]extent.Extent, error) {
	h := d.h
	var out []extent.Extent
	collect := func(e extent.Extent) error {
		e, err := h.clip(e, d.f.Size)
		if err != nil {
			return err
		}
		if e.Coding == extent.Plain {
			lo, hi := max(e.Guest, from), min(e.Guest+e.Size, to)
			if lo >= hi {
				return nil
			}
			e = extent.Extent{Host: e.Host + lo - e.Guest, Stored: hi - lo, Guest: lo, Size: hi - lo}
			if n := len(out); n > 0 && follows(out[n-1], e) {
				out[n-1].Stored += e.Stored
				out[n-1].Size += e.Size
				return nil
			}
		}
		out = append(out, e)
		return nil
	}
	to = min(to, h.disk)
	for at := from &^ (h.cluster() - 1); at < to; {
		end := min(to, at-at%h.reach()+h.reach()) // of what this L2 table describes
		if err := d.table(at, end, collect); err != nil {
			return nil, err
		}
		at = end
	}
	return out, nil
}

func follows(a, b extent.Extent) bool {
	return a.Coding == extent.Plain && a.Host+a.Stored == b.Host && a.Guest+a.Size == b.Guest
}

// table emits the extents of [at, end), which one L2 table describes. at is where a cluster begins.
func (d *Disk) table(at, end int64, emit func(extent.Extent) error) error {
	h, number := d.h, at/d.h.reach()
	var entry [8]byte
	if err := d.f.Fill(entry[:], h.l1Offset+number*8, "qcow2 L1 table"); err != nil {
		return err
	}
	return h.l1(number*8, entry[:], func(table, guest int64) error {
		first, last := (at-guest)>>h.clusterBits, (end-guest+h.cluster()-1)>>h.clusterBits
		p := make([]byte, (last-first)*h.entrySize())
		if err := d.f.Fill(p, table+first*h.entrySize(), "qcow2 L2 table"); err != nil {
			return err
		}
		return h.l2(at, p, parts{data: emit})
	})
}
