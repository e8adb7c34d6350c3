package zstd

import "testing"

// The numbers of RFC 8878, section 3.1.1.3.2.1.1.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		codes      []code
		symbol     int
		base, bits uint32
	}{
		{llCodes, 0, 0, 0}, {llCodes, 15, 15, 0}, {llCodes, 16, 16, 1}, {llCodes, 25, 64, 6}, {llCodes, 35, 65536, 16},
		{mlCodes, 0, 3, 0}, {mlCodes, 31, 34, 0}, {mlCodes, 32, 35, 1}, {mlCodes, 43, 131, 7}, {mlCodes, 52, 65539, 16},
		{ofCodes, 0, 1, 0}, {ofCodes, 31, 1 << 31, 31},
	} {
		if got := c.codes[c.symbol]; got.base != c.base || uint32(got.bits) != c.bits {
			t.Errorf("symbol %d is %+v, want %d and %d bits", c.symbol, got, c.base, c.bits)
		}
	}
	if len(llCodes) != 36 || len(mlCodes) != 53 {
		t.Errorf("%d and %d codes", len(llCodes), len(mlCodes))
	}
}

// Every state of a table can be left for another one of it.
func TestDefaultTables(t *testing.T) {
	for _, table := range []*table{llDefault, mlDefault, ofDefault} {
		for i, e := range table.entries[:1<<table.log] {
			if next := uint64(e&0xffff) + 1<<(e>>16&0xff) - 1; next >= 1<<table.log {
				t.Errorf("state %d leads to %d of %d", i, next, 1<<table.log)
			}
		}
	}
}

// heap is pages without end.
type heap struct{ made, released int }

func (h *heap) Page() []byte   { h.made++; return make([]byte, PageSize+PageSlack) }
func (h *heap) Release([]byte) { h.released++ }

func TestPagesAreReleasedBehindTheWindow(t *testing.T) {
	var h heap
	d := New(&h, 0)
	d.Frame(2 << 20)
	for range 20 * PageSize / MaxBlock {
		d.Run('x', MaxBlock)
	}
	if h.made != 20 || h.made-h.released > 4 {
		t.Errorf("%d pages made and %d released", h.made, h.released)
	}
}
