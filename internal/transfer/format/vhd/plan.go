package vhd

import (
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/format/sequential"
)

// Trailer recognises the footer of a fixed disk that came as a stream: the last sector, which is no part of the disk.
func Trailer(last []byte, size int64) (int64, bool) {
	if !IsFixed(last, size) {
		return 0, false
	}
	f, err := parseFooter(last)
	return f.disk, err == nil
}

// Plan reads a dynamic VHD that comes as a stream: its table comes first.
type Plan struct{ d *disk }

// Head implements sequential.Plan.
func (p *Plan) Head(head []byte, _ bool) (int64, error) {
	size := int64(len(head))
	if size < FooterSize {
		return 0, task.Truncated("vhd footer", 0, FooterSize, size)
	}
	foot, err := parseFooter(head[:FooterSize])
	if err != nil {
		return 0, err
	}
	if foot.kind == fixed {
		return 0, task.Errorf(task.BadImage, "fixed vhd begins with a footer, it should only end with one")
	}
	if foot.header < 0 {
		return 0, task.Errorf(task.BadImage, "vhd dynamic header is beyond any file")
	}
	if end := foot.header + headerSize; end > size {
		return end, nil
	}
	p.d, err = parseHeader(foot, head[foot.header:foot.header+headerSize])
	return size, err
}

// Shape implements sequential.Plan.
func (p *Plan) Shape() extent.Shape { return extent.Shape{Disk: p.d.disk, Unit: p.d.block} }

// Tables implements sequential.Plan.
func (p *Plan) Tables(b *sequential.Book) {
	b.Want(sequential.Region{Off: p.d.table, Len: p.d.blocks * 4})
}

// Table implements sequential.Plan.
func (p *Plan) Table(b *sequential.Book, _ sequential.Region, at int64, piece []byte) error {
	return p.d.entries(at, piece, b.Place)
}

// Open implements sequential.Plan.
func (p *Plan) Open(f extent.File) (extent.Image, error) { return Open(f) }
