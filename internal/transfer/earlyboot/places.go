package earlyboot

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Map says where in an image's file each part of its disk is, in the order of the disk. Images themselves answer in the order
// of the file, which is the order they are fetched in.
type Map struct{ all []format.Extent }

// mostPlaces bounds a map: 40 bytes each, so 20 MiB. A disk of 32 GiB whose every cluster is compressed has as many.
const mostPlaces = 1 << 19

// ErrScattered means that the image is in so many pieces that its map does not fit the memory a worker has, or lies about them.
var ErrScattered = fmt.Errorf("its image is damaged or in more than %d pieces", mostPlaces)

// NewMap reads all tables of an image whose file has size bytes.
func NewMap(ctx context.Context, image format.Image, size int64) (*Map, error) {
	m := &Map{}
	err := extent.Walk(ctx, image, size, size, func(_, _ int64, es []format.Extent) error {
		if len(m.all)+len(es) > mostPlaces {
			return ErrScattered
		}
		for _, e := range es {
			if e.Host < 0 || e.Stored <= 0 || e.Host >= size || e.Guest < 0 || e.Size <= 0 || e.Guest > image.Size()-e.Size ||
				e.Coding == format.Plain && (e.Stored != e.Size || e.Stored > size-e.Host) {
				return ErrScattered // the fill says what is wrong with it
			}
		}
		m.all = append(m.all, es...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(m.all, func(a, b format.Extent) int { return cmp.Compare(a.Guest, b.Guest) })
	return m, nil
}

// In returns the extents that have bytes of [from, to) of the disk. Plain ones are cut to it, coded ones are whole.
func (m *Map) In(from, to int64) []format.Extent {
	i, _ := slices.BinarySearchFunc(m.all, from, func(e format.Extent, at int64) int {
		if e.Guest+e.Size <= at {
			return -1
		}
		return 1
	})
	var out []format.Extent
	for ; i < len(m.all) && m.all[i].Guest < to; i++ {
		e := m.all[i]
		if e.Coding == format.Plain {
			lo, hi := max(e.Guest, from), min(e.Guest+e.Size, to)
			e = format.Extent{Host: e.Host + lo - e.Guest, Stored: hi - lo, Guest: lo, Size: hi - lo}
		}
		out = append(out, e)
	}
	return out
}

// before reports whether all data of [from, to) of the disk lies before mark in the file. Ranges without data in the file are zero.
func (m *Map) before(from, to, mark int64) bool {
	return !slices.ContainsFunc(m.In(from, to), func(e format.Extent) bool { return e.Host+e.Stored > mark })
}
