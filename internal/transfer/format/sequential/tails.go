package sequential

import (
	"slices"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// maxTails bounds the tails in memory: at most a sector each.
const maxTails = 1 << 11

// tail is the gap between one coded extent's last sector and the next extent. It belongs to the first of them, unless it is so
// small that other extents fit in between, which only a later table lists. Tails are too many and too short to be parked.
type tail struct {
	host int64
	p    []byte
}

// tails are the latest ones, in order.
type tails []tail

// add remembers a tail and forgets those before a byte of the file.
func (t *tails) add(host int64, p []byte, before int64) {
	if len(*t) >= maxTails || len(*t) > 0 && (*t)[0].host < before-64<<10 {
		keep, _ := t.search(before)
		*t = slices.Delete(*t, 0, max(keep, len(*t)-maxTails/2))
	}
	*t = append(*t, tail{host, slices.Clone(p)})
}

func (t tails) search(host int64) (int, bool) {
	return slices.BinarySearchFunc(t, host, func(a tail, h int64) int { return int(max(-1, min(1, a.host-h))) })
}

// find returns what is remembered from a byte of the file on.
func (t tails) find(host int64) []byte {
	i, exact := t.search(host)
	if !exact {
		i--
	}
	if i < 0 || host-t[i].host >= int64(len(t[i].p)) {
		return nil
	}
	return t[i].p[host-t[i].host:]
}

// lateComers puts the coded extents that were passed as the tail of another before a table described them.
func (d *Decoder) lateComers() error {
	late := d.book.late
	d.book.late = late[:0]
	for _, e := range late {
		p := d.tails.find(e.host)
		if len(p) == 0 || -e.n-int64(len(p)) >= sector {
			continue // it is parked, or the end will find it missing
		}
		s := d.book.shape
		x := extent.Extent{Host: e.host, Stored: min(int64(len(p)), -e.n), Guest: e.guest, Coding: s.Coding}
		x.Size = min(s.Unit, s.Disk-e.guest)
		if err := d.putOne(x, p[:x.Stored]); err != nil {
			return err
		}
	}
	return nil
}
