package format_test

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// joined are extents in the order of the disk, with plain ones that follow each other as one.
func joined(es []format.Extent) []format.Extent {
	es = slices.Clone(es)
	slices.SortFunc(es, func(a, b format.Extent) int { return cmp.Compare(a.Guest, b.Guest) })
	var out []format.Extent
	for _, e := range es {
		if n := len(out); n > 0 && e.Coding == format.Plain && out[n-1].Coding == format.Plain &&
			out[n-1].Host+out[n-1].Stored == e.Host && out[n-1].Guest+out[n-1].Size == e.Guest {
			out[n-1].Stored += e.Stored
			out[n-1].Size += e.Size
			continue
		}
		out = append(out, e)
	}
	return out
}

// window returns those of [from, to).
func window(es []format.Extent, from, to int64) []format.Extent {
	var out []format.Extent
	for _, e := range es {
		lo, hi := max(e.Guest, from), min(e.Guest+e.Size, to)
		switch {
		case lo >= hi:
		case e.Coding != format.Plain:
			out = append(out, e)
		default:
			out = append(out, format.Extent{Host: e.Host + lo - e.Guest, Stored: hi - lo, Guest: lo, Size: hi - lo})
		}
	}
	return out
}

// samePlaces compares what an image says about places of its disk with what it says about its file.
func samePlaces(t *testing.T, kind format.Kind, file []byte, m format.Image) {
	t.Helper()
	d, err := format.OpenDisk(kind, bytes.NewReader(file), int64(len(file)))
	if d == nil && err == nil {
		return
	}
	if err != nil || d.Size() != m.Size() {
		t.Fatalf("it cannot be asked about places: %v", err)
	}
	var all []format.Extent
	err = extent.Walk(context.Background(), m, int64(len(file)), int64(len(file)), func(_, _ int64, es []format.Extent) error {
		all = append(all, es...)
		return nil
	})
	if err != nil {
		return
	}
	all = joined(all)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		from, to := int64(0), d.Size()
		if i > 0 && to > 0 {
			from = r.Int64N(to)
			to = from + r.Int64N(to-from+1)
		}
		got, err := d.In(from, to)
		if err != nil {
			t.Fatalf("[%d, %d): %v", from, to, err)
		}
		if want := window(all, from, to); !slices.Equal(joined(got), want) {
			t.Fatalf("[%d, %d): %v instead of %v", from, to, got, want)
		}
	}
}

// TestPlaces: an image says the same about places of its disk as about its file.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name := range readSums(t) {
		if !strings.HasPrefix(name, "qcow2") {
			continue
		}
		file := readSample(t, name)
		m, err := format.Open(format.QCOW2, bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { samePlaces(t, format.QCOW2, file, m) })
	}
}
