package extent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/internal/task"
)

// scattered returns the map of a file whose clusters are on the disk in random order, some of them coded.
func scattered(n int64) []Extent {
	r := rand.New(rand.NewPCG(1, 2))
	var es []Extent
	for host, guest := range r.Perm(int(n)) {
		e := Extent{Host: int64(host) * 4096, Stored: 4096, Guest: int64(guest) * 4096, Size: 4096}
		switch {
		case host%7 == 3:
			continue // a hole in the file
		case host%5 == 2:
			e.Host, e.Stored, e.Coding = e.Host+100, 700, Zlib
		}
		es = append(es, e)
	}
	r.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
	return es
}

func indexOf(es []Extent, file int64, scans *int) *Index {
	return NewIndex(Shape{Disk: 1 << 40, File: file, Unit: 4096, Coding: Zlib}, func(_ context.Context, emit func(Extent) error) error {
		*scans++
		for _, e := range es {
			if err := emit(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// all collects what Walk finds, with plain extents in pieces of a cluster so that windows do not show.
func all(t *testing.T, x *Index, file, window int64) []Extent {
	t.Helper()
	var list []Extent
	err := Walk(context.Background(), x, file, window, func(_, _ int64, es []Extent) error {
		for _, e := range es {
			for ; e.Coding == Plain && e.Size > 512; e.Host, e.Guest, e.Size, e.Stored = e.Host+512, e.Guest+512, e.Size-512, e.Stored-512 {
				list = append(list, Extent{Host: e.Host, Guest: e.Guest, Size: 512, Stored: 512})
			}
			list = append(list, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestBandsAndWindowsDoNotShow compares a map that fits in memory with the same one when it does not.
func TestBandsAndWindowsDoNotShow(t *testing.T) {
	t.Parallel()
	const file = 3000 * 4096
	es := scattered(3000)
	var scans int
	want := all(t, indexOf(es, file, &scans), file, file)
	if scans != 1 {
		t.Fatalf("a small map took %d scans", scans)
	}
	for _, limit := range []int{17, 500} {
		for _, window := range []int64{512, 1 << 16, file} {
			x := indexOf(es, file, &scans)
			x.limit = limit
			scans = 0
			if got := all(t, x, file, window); !slices.Equal(want, got) {
				t.Fatalf("limit %d, window %d:\n%s", limit, window, cmp.Diff(want, got))
			}
			if scans < 2 {
				t.Fatalf("limit %d: %d scans, so it was not tested", limit, scans)
			}
		}
	}
}

func TestLongRunsAreOneExtent(t *testing.T) {
	t.Parallel()
	const file = 100 << 20
	var es []Extent
	for at := int64(0); at < file; at += 65536 {
		es = append(es, Extent{Host: at, Stored: 65536, Guest: at + 1<<30, Size: 65536})
	}
	var scans int
	got, err := indexOf(es, file, &scans).Extents(context.Background(), 5, file-5)
	if err != nil {
		t.Fatal(err)
	}
	want := []Extent{{Host: 5, Stored: file - 10, Guest: 1<<30 + 5, Size: file - 10}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestCrowds(t *testing.T) {
	t.Parallel()
	// Every byte of a small file begins a coded extent: windows become smaller, and nothing is lost.
	const file = 3 * MaxExtents
	var es []Extent
	for at := int64(0); at < file; at++ {
		es = append(es, Extent{Host: at, Stored: 10, Guest: at * 4096, Size: 4096, Coding: Zlib})
	}
	var scans int
	if got := all(t, indexOf(es, file, &scans), file, file); len(got) != len(es) {
		t.Fatalf("%d extents of %d came", len(got), len(es))
	}
	// All at the same byte cannot be helped.
	for i := range es {
		es[i].Host = 77
	}
	x := indexOf(es, file, &scans)
	err := Walk(context.Background(), x, file, file, func(_, _ int64, _ []Extent) error { return nil })
	var bad *task.Error
	if !errors.As(err, &bad) || bad.Reason != task.BadImage {
		t.Fatalf("a crowd ends with %v", err)
	}
}

func TestLooseExtentsEndWhereTheNextBegins(t *testing.T) {
	t.Parallel()
	var scans int
	x := indexOf([]Extent{{Host: 600, Stored: 5000, Coding: Zlib}, {Host: 100, Stored: 5000, Guest: 4096, Coding: Zlib}}, 2000, &scans)
	x.shape.Loose = true
	got, err := x.Extents(context.Background(), 0, 200)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Extent{{Host: 100, Stored: 500, Guest: 4096, Size: 4096, Coding: Zlib}}, got); diff != "" {
		t.Fatal(diff)
	}
}
