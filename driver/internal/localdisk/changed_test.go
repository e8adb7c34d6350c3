package localdisk

import (
	"slices"
	"testing"
)

// TestSameBlockIsSameData: only a place that identifies its data, the same in both, is unchanged.
func TestSameBlockIsSameData(t *testing.T) {
	t.Parallel()
	const end = 100
	at := func(from, to int64, place uint64) extent { return extent{from: from, to: to, place: place, sure: true} }
	unsure := extent{from: 10, to: 20, place: 5}
	for name, row := range map[string]struct {
		was, is []extent
		want    []span
	}{
		"nothing, as before":                {},
		"the same place":                    {was: []extent{at(10, 20, 500)}, is: []extent{at(10, 20, 500)}},
		"the same place at the beginning":   {was: []extent{at(10, 20, 0)}, is: []extent{at(10, 20, 0)}},
		"the same place, differently cut":   {was: []extent{at(10, 30, 500)}, is: []extent{at(10, 15, 500), at(15, 30, 505)}},
		"another place":                     {was: []extent{at(10, 20, 500)}, is: []extent{at(10, 20, 600)}, want: []span{{10, 20}}},
		"a part is at another place":        {was: []extent{at(10, 30, 500)}, is: []extent{at(10, 15, 500), at(15, 20, 900), at(20, 30, 510)}, want: []span{{15, 20}}},
		"data moved along within the file":  {was: []extent{at(10, 20, 500)}, is: []extent{at(11, 21, 500)}, want: []span{{10, 11}, {11, 20}, {20, 21}}},
		"data where there was none":         {is: []extent{at(10, 20, 500)}, want: []span{{10, 20}}},
		"data at the device's beginning":    {is: []extent{at(10, 20, 0)}, want: []span{{10, 20}}},
		"a hole where there was data":       {was: []extent{at(10, 20, 500)}, want: []span{{10, 20}}},
		"a place that tells nothing":        {was: []extent{unsure}, is: []extent{unsure}, want: []span{{10, 20}}},
		"up to the end":                     {was: []extent{at(10, 100, 500)}, is: []extent{at(10, 90, 500)}, want: []span{{90, 100}}},
		"more than is compared is left out": {was: []extent{at(90, 120, 500)}, is: []extent{at(90, 120, 600)}, want: []span{{90, 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []span
			err := compare(row.was, row.is, 0, end, func(from, to int64) error {
				got = append(got, span{from, to})
				return nil
			})
			if err != nil || !slices.Equal(got, row.want) {
				t.Errorf("changed are %v, want %v (%v)", got, row.want, err)
			}
		})
	}
}

// TestExtentsRead: what the kernel lists is cut to what was asked for; what reads as zeroes is left out, and a list that makes no
// sense is refused.
func TestExtentsRead(t *testing.T) {
	t.Parallel()
	x := func(at, length uint64, flags uint32) fiemapExtent {
		return fiemapExtent{logical: at, physical: 1000 + at, length: length, flags: flags}
	}
	for name, row := range map[string]struct {
		list  []fiemapExtent
		want  []extent
		until int64
		bad   bool
	}{
		"none":                     {until: 100},
		"one":                      {list: []fiemapExtent{x(20, 10, fiemapLast)}, want: []extent{{20, 30, 1020, true}}, until: 100},
		"begins before":            {list: []fiemapExtent{x(0, 30, 0)}, want: []extent{{10, 30, 1010, true}}, until: 100},
		"ends behind":              {list: []fiemapExtent{x(90, 30, 0)}, want: []extent{{90, 100, 1090, true}}, until: 100},
		"begins behind":            {list: []fiemapExtent{x(100, 30, 0)}, until: 100},
		"unwritten":                {list: []fiemapExtent{x(20, 10, fiemapUnwritten), x(30, 10, 0)}, want: []extent{{30, 40, 1030, true}}, until: 100},
		"compressed":               {list: []fiemapExtent{x(20, 10, 0x8)}, want: []extent{{20, 30, 1020, false}}, until: 100},
		"inline":                   {list: []fiemapExtent{x(20, 10, 0x200|0x100)}, want: []extent{{20, 30, 1020, false}}, until: 100},
		"delayed, unwritten":       {list: []fiemapExtent{x(20, 10, fiemapUnwritten|0x4|0x2)}, want: []extent{{20, 30, 1020, false}}, until: 100},
		"shared":                   {list: []fiemapExtent{x(20, 10, 0x2000)}, want: []extent{{20, 30, 1020, true}}, until: 100},
		"before what is asked for": {list: []fiemapExtent{x(0, 10, 0)}, bad: true},
		"backwards":                {list: []fiemapExtent{x(30, 10, 0), x(20, 10, 0)}, bad: true},
		"overlapping":              {list: []fiemapExtent{x(20, 10, 0), x(25, 10, 0)}, bad: true},
		"empty":                    {list: []fiemapExtent{x(20, 0, 0)}, bad: true},
		"longer than can be":       {list: []fiemapExtent{x(20, 1<<63, 0)}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fiemap{mapped: uint32(len(row.list))}
			copy(m.extents[:], row.list)
			got, until, err := m.read(10, 100)
			if row.bad != (err != nil) || !slices.Equal(got, row.want) || until != row.until {
				t.Errorf("%v up to %d, %v", got, until, err)
			}
		})
	}
	full := &fiemap{mapped: extentsPerCall}
	for n := range full.extents {
		full.extents[n] = x(uint64(10+n), 1, 0)
	}
	if got, until, err := full.read(10, 1<<20); err != nil || len(got) != extentsPerCall || until != 10+extentsPerCall {
		t.Errorf("a full list: %d extents up to %d, %v", len(got), until, err)
	}
	full.mapped++
	if _, _, err := full.read(10, 1<<20); err == nil {
		t.Error("more extents than fit were read")
	}
}

// span is a range of a snapshot.
type span struct{ from, to int64 }
