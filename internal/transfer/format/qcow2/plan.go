package qcow2

import (
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/sequential"
)

// Plan reads a qcow2 that comes as a stream: QEMU writes an L2 table before most of the clusters it describes.
type Plan struct{ h *header }

// wantL1 is the tag of the L1 table; that of an L2 table is the part of the disk it describes.
const wantL1 = -1

// Head implements sequential.Plan.
func (p *Plan) Head(head []byte, _ bool) (int64, error) {
	h, err := parse(head)
	p.h = h
	return int64(len(head)), err
}

// Shape implements sequential.Plan.
func (p *Plan) Shape() extent.Shape {
	return extent.Shape{Disk: p.h.disk, Unit: p.h.cluster(), Coding: p.h.coding}
}

// Tables implements sequential.Plan.
func (p *Plan) Tables(b *sequential.Book) {
	b.Want(sequential.Region{Off: p.h.l1Offset, Len: p.h.l1Size, Tag: wantL1})
}

// Table implements sequential.Plan.
func (p *Plan) Table(b *sequential.Book, r sequential.Region, at int64, piece []byte) error {
	if r.Tag == wantL1 {
		return p.h.l1(at, piece, func(table, guest int64) error {
			b.Want(sequential.Region{Off: table, Len: p.h.l2Size(guest), Tag: guest})
			return nil
		})
	}
	return p.h.l2(r.Tag+at/p.h.entrySize()<<p.h.clusterBits, piece, parts{data: b.Place})
}

// Open implements sequential.Plan.
func (p *Plan) Open(f extent.File) (extent.Image, error) { return Open(f) }
