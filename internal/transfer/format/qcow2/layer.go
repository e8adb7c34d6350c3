package qcow2

import (
	"context"
	"strconv"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Layer is an image that may lie over another: what it does not hold is read from the other. Its name for the other is never
// followed: the reader of a chain knows by other means what is below.
type Layer struct {
	h *header
	f extent.File
}

// OpenLayer reads the header.
func OpenLayer(f extent.File) (*Layer, error) { return openAs(f, parseLayer) }

func openAs(f extent.File, parse func(head []byte) (*header, error)) (*Layer, error) {
	head := make([]byte, min(f.Size, headSize))
	if err := f.Fill(head, 0, "qcow2 header"); err != nil {
		return nil, err
	}
	h, err := parse(head)
	if err != nil {
		return nil, err
	}
	return &Layer{h: h, f: f}, nil
}

// Size is the size of the disk.
func (l *Layer) Size() int64 { return l.h.disk }

// Below is the file name that the image has for the one below, and whether it has one at all.
func (l *Layer) Below() (name string, has bool) {
	if l.h.backing == "" {
		return "", false
	}
	name, err := strconv.Unquote(l.h.backing)
	if err != nil {
		name = l.h.backing // a name that is no name
	}
	return name, true
}

// Grain is the smallest part of the disk that the image has or has not: a cluster, or a subcluster.
func (l *Layer) Grain() int64 {
	if l.h.extended {
		return l.h.cluster() / 32
	}
	return l.h.cluster()
}

// Image returns the extents with data of this image alone, without the images below.
func (l *Layer) Image() extent.Image {
	shape := extent.Shape{Disk: l.h.disk, File: l.f.Size, Unit: l.h.cluster(), Coding: l.h.coding}
	return extent.NewIndex(shape, func(ctx context.Context, emit func(extent.Extent) error) error {
		return l.h.scan(ctx, l.f, parts{data: emit})
	})
}

// Parts reads all tables and calls data and zero with every range that hides the image below, in any order, one at a time.
func (l *Layer) Parts(ctx context.Context, data func(extent.Extent) error, zero func(at, n int64) error) error {
	return l.h.scan(ctx, l.f, parts{data: data, zero: zero})
}
