package lzma

import (
	"bytes"
	"errors"
	"testing"
)

func TestParseHeader(t *testing.T) {
	for _, c := range []struct {
		in   []byte
		want Header
	}{
		{[]byte{0}, Header{}},
		{[]byte{1, 0, 0}, Header{Control: 1, Packed: 1, Unpacked: 1}},
		{[]byte{2, 0xff, 0xff}, Header{Control: 2, Packed: 1 << 16, Unpacked: 1 << 16}},
		{[]byte{0x80, 0, 9, 0, 4}, Header{Control: 0x80, Packed: 5, Unpacked: 10}},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0x5d}, Header{Control: 0xff, Props: 0x5d, Packed: 1 << 16, Unpacked: 1 << 21}},
	} {
		n, err := HeaderSize(c.in[0])
		if err != nil || n != len(c.in) {
			t.Errorf("% x is %d bytes, %v", c.in, n, err)
			continue
		}
		if got := ParseHeader(c.in); got != c.want {
			t.Errorf("% x is %+v, want %+v", c.in, got, c.want)
		}
	}
	for control := byte(3); control < 0x80; control++ {
		if _, err := HeaderSize(control); !errors.Is(err, BadControl) {
			t.Errorf("control %#x: %v", control, err)
		}
	}
}

// heap is pages without end.
type heap struct {
	pages    [][]byte
	released int
}

func (h *heap) Page() ([]byte, error) {
	h.pages = append(h.pages, make([]byte, PageSize))
	return h.pages[len(h.pages)-1], nil
}
func (h *heap) Release([]byte) { h.released++ }

func TestStoredChunksAndTheDictionary(t *testing.T) {
	var h heap
	var d Decoder
	d.Reset(1<<20, 100)
	want := make([]byte, 100)
	for i := range 100 {
		p := bytes.Repeat([]byte{byte(i)}, 1<<16)
		control := byte(2)
		if i == 0 {
			control = 1
		}
		if err := d.Chunk(Header{Control: control, Packed: len(p), Unpacked: len(p)}, p, &h); err != nil {
			t.Fatal(err)
		}
		want = append(want, p...)
	}
	if got := bytes.Join(h.pages, nil)[:d.At()]; !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	if kept := len(h.pages) - h.released; kept > 3 {
		t.Errorf("%d pages are kept for a dictionary of one", kept)
	}
	d.Finish(&h)
	if h.released != len(h.pages) {
		t.Errorf("%d of %d pages released", h.released, len(h.pages))
	}
}

func TestChunksThatRelyOnNothing(t *testing.T) {
	for _, control := range []byte{2, 0x80, 0xa0, 0xc0} {
		var h heap
		var d Decoder
		d.Reset(1<<20, 0)
		if err := d.Chunk(Header{Control: control, Packed: 5, Unpacked: 1}, make([]byte, 5), &h); !errors.Is(err, BadReset) {
			t.Errorf("control %#x first: %v", control, err)
		}
	}
	var h heap
	var d Decoder
	d.Reset(1<<20, 0)
	if err := d.Chunk(Header{Control: 0xe0, Props: 225, Packed: 5, Unpacked: 1}, make([]byte, 5), &h); !errors.Is(err, BadProperties) {
		t.Errorf("impossible properties: %v", err)
	}
}
