package layerdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

// memory is a file that is not there.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(m.b).ReadAt(p, off) }

// read returns the disk in a qcow2 file that lies over no other.
func read(b []byte) []byte {
	be := binary.BigEndian
	const where = 1<<56 - cluster
	out := make([]byte, be.Uint64(b[24:]))
	first := be.Uint64(b[40:])
	for at := range len(out) / cluster {
		table := be.Uint64(b[first+uint64(at/perTable)*8:]) & where
		if table == 0 {
			continue
		}
		if data := be.Uint64(b[table+uint64(at%perTable)*8:]) & where; data != 0 {
			copy(out[at*cluster:(at+1)*cluster], b[data:])
		}
	}
	return out
}

func content(n int, size int64) func(File) (int64, error) {
	return func(w File) (int64, error) {
		_, err := w.WriteAt(bytes.Repeat([]byte{byte(n + 1)}, int(size)), 0)
		return size, err
	}
}

// TestLayer: a file holds its layer and a table that says where every layer so far is; it lies over the one below.
func TestLayer(t *testing.T) {
	var first, second memory
	one, err := Disk{}.Layer(&first, "", "layer-0", content(0, 3*cluster+5))
	if err != nil {
		t.Fatal(err)
	}
	two, err := one.Layer(&second, "0.qcow2", "layer-1", content(1, 2*align))
	if err != nil {
		t.Fatal(err)
	}
	want := []Part{{"layer-0", align, align}, {"layer-1", 2 * align, 2 * align}}
	if fmt.Sprint(two.Parts) != fmt.Sprint(want) || two.Size != 5*align || two.Below != "0.qcow2" {
		t.Errorf("the disk is %+v", two)
	}
	whole := read(first.b)
	if int64(len(whole)) != one.Size {
		t.Fatalf("the disk has %d bytes, want %d", len(whole), one.Size)
	}
	if got := whole[align : align+3*cluster+5]; !bytes.Equal(got, bytes.Repeat([]byte{1}, 3*cluster+5)) {
		t.Error("the layer is not where the table says")
	}
	if h := whole[sector:]; string(h[:8]) != "EFI PART" || binary.LittleEndian.Uint32(h[88:]) != crc32.ChecksumIEEE(whole[2*sector:2*sector+tableSize]) {
		t.Error("there is no partition table")
	}
	if back := whole[one.Size-sector:]; string(back[:8]) != "EFI PART" {
		t.Error("there is no partition table at the end")
	}
	if !bytes.Contains(second.b[:cluster], []byte("0.qcow2")) || len(second.b) > 2*align+10*cluster {
		t.Errorf("the second file has %d bytes, and does not lie over the first or holds it too", len(second.b))
	}
}

// TestRoom: what the guest writes to ends with the disk.
func TestRoom(t *testing.T) {
	var m memory
	d, err := Disk{}.Layer(&m, "", "l", content(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	top, err := d.Room(&memory{}, "l.qcow2", "room", d.Least(10*align))
	if err != nil || top.Size != 13*align || top.Parts[1] != (Part{"room", 2 * align, 10 * align}) {
		t.Errorf("%+v, %v", top, err)
	}
	if _, err := d.Room(&memory{}, "l.qcow2", "room", 2*align); err == nil || !strings.Contains(err.Error(), "leaves no room") {
		t.Errorf("a disk that is too small: %v", err)
	}
}

// TestBounds: a table has no more entries, and what cannot be written is said.
func TestBounds(t *testing.T) {
	d := Disk{}
	var err error
	for n := range MaxLayers {
		if d, err = d.Layer(&memory{}, "below", fmt.Sprint(n), content(n, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Layer(&memory{}, "below", "more", content(0, 1)); !task.Is(err, task.UnsupportedImage) {
		t.Errorf("one layer more: %v", err)
	}
	if _, err := d.Room(&memory{}, "below", "room", d.Least(align)); err != nil {
		t.Errorf("the room behind all layers: %v", err)
	}
	mine := errors.New("mine")
	if _, err := (Disk{}).Layer(&memory{}, "", "l", func(File) (int64, error) { return 0, mine }); !errors.Is(err, mine) {
		t.Errorf("a layer that cannot be made: %v", err)
	}
	if _, err := (Disk{}).Layer(&memory{}, "", strings.Repeat("l", 40), content(0, 1)); err == nil {
		t.Error("a name that is too long was taken")
	}
}
