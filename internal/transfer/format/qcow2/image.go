package qcow2

import (
	"context"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Open reads the header.
func Open(f extent.File) (extent.Image, error) {
	l, err := openAs(f, parse)
	if err != nil {
		return nil, err
	}
	return l.Image(), nil
}

// scan goes through all tables. The work is bounded by the L1 table's size whatever the entries say: an L2 table refers to no
// other tables, so there can be no loop.
func (h *header) scan(ctx context.Context, f extent.File, emit parts) error {
	inside := parts{zero: emit.zero, data: func(e extent.Extent) error {
		clipped, err := h.clip(e, f.Size)
		if err != nil {
			return err
		}
		if err := emit.data(clipped); err != nil {
			return err
		}
		return emit.zeroes(clipped.Guest+clipped.Size, e.Size-clipped.Size)
	}}
	return f.Nested(ctx, h.l1Offset, h.l1Size, "qcow2 L1 table", func(at int64, p []byte, read extent.ReadTable) error {
		return h.l1(at, p, func(table, guest int64) error {
			return read(table, h.l2Size(guest), "qcow2 L2 table", func(at int64, p []byte) error {
				return h.l2(guest+at/h.entrySize()<<h.clusterBits, p, inside)
			})
		})
	})
}

// l2Size returns how much of the L2 table for guest the disk needs.
func (h *header) l2Size(guest int64) int64 {
	clusters := (min(h.reach(), h.disk-guest) + h.cluster() - 1) >> h.clusterBits
	return clusters * h.entrySize()
}

// clip holds an extent against the end of the file. A file may end inside its last cluster, and QEMU reads the rest of
// it as zeroes; one that ends before the cluster has lost data.
func (h *header) clip(e extent.Extent, size int64) (extent.Extent, error) {
	over := e.Host + e.Stored - size
	switch {
	case over <= 0:
		return e, nil
	case e.Coding == extent.Plain && e.Host < size:
		e.Stored -= over
		e.Size -= over
		return e, nil
	case e.Coding != extent.Plain && over < 512 && e.Host < size:
		e.Stored -= over
		return e, nil
	}
	return e, task.Truncated("qcow2 cluster", e.Host, e.Stored, size)
}
