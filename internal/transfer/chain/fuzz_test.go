package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// memory is a file in memory.
type memory struct {
	name string
	data []byte
}

func (m memory) Info() source.Info {
	return source.Info{Name: m.name, Size: int64(len(m.data)), Ranged: true, Version: m.name}
}

func (m memory) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := m.Info().Span(off, n)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(m.data[off : off+n])), nil
}

func (memory) Close() error { return nil }

const part = 64 << 10

// four are the files of a chain, the oldest first, and the disk that they are.
func four(t testing.TB) (files [][]byte, disk []byte) {
	t.Helper()
	disk = bytes.Repeat([]byte{1}, 8*part)
	for n := range 4 {
		var changed [][2]int64
		if n > 0 {
			at := n * part
			copy(disk[at:at+2*part], bytes.Repeat([]byte{byte(10 * n)}, 2*part))
			clear(disk[at+part : at+2*part]) // what became zero hides what is below
			changed = [][2]int64{{int64(at), 2 * part}}
		}
		now := bytes.Clone(disk)
		within := func(places [][2]int64) func(context.Context, int64, int64) ([][2]int64, error) {
			return func(_ context.Context, from, to int64) (out [][2]int64, err error) {
				for _, p := range places {
					if begin, end := max(p[0], from), min(p[0]+p[1], to); begin < end {
						out = append(out, [2]int64{begin, end - begin})
					}
				}
				return out, nil
			}
		}
		var data [][2]int64
		for at := 0; at < len(now); at += part {
			if now[at] != 0 {
				data = append(data, [2]int64{int64(at), part})
			}
		}
		d := encode.Disk{ReaderAt: bytes.NewReader(now), Size: int64(len(now)), Data: within(data)}
		if n > 0 {
			d.Below = &encode.Below{Name: fmt.Sprint(n - 1), Changed: within(changed)}
		}
		image, err := encode.QCOW2(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		file := make([]byte, image.Size())
		if _, err := image.ReadAt(file, 0); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files, disk
}

// FuzzChain: four files, in any order and with any of their bytes changed or cut off, are the disk that they were, or are refused with a reason, or have
// extents that lie in the files and on the disk. An increment over a file that is not its own is always refused.
func FuzzChain(f *testing.F) {
	files, disk := four(f)
	f.Add(uint8(0b11100100), uint8(0), uint32(0), []byte{}, uint32(0))
	f.Add(uint8(0b11100001), uint8(1), uint32(24), []byte{0, 0, 1}, uint32(0))
	f.Add(uint8(0b11100100), uint8(2), uint32(0x30000), []byte{0x80, 0, 0, 0, 0, 5, 0, 0}, uint32(0))
	f.Add(uint8(0b11100100), uint8(3), uint32(0), []byte{}, uint32(100))
	f.Fuzz(func(t *testing.T, order, which uint8, at uint32, bytesThere []byte, cut uint32) {
		var links []Link
		inOrder, proper, before := true, true, -1 // proper: a whole image may lie over anything, an increment over its own
		for n := range 4 {
			i := int(order>>(2*n)) & 3
			inOrder, proper, before = inOrder && i == n, proper && (i == 0 || before == i-1), i
			links = append(links, Link{Name: fmt.Sprint(i), Blob: memory{fmt.Sprint(i), files[i]}})
		}
		victim := links[which&3].Blob.(memory)
		changed := bytes.Clone(victim.data)
		n := copy(changed[int(at)%len(changed):], bytesThere)
		changed = changed[:len(changed)-int(cut)%len(changed)]
		same := bytes.Equal(changed, victim.data)
		links[which&3].Blob = memory{victim.name, changed}
		c, err := Open(t.Context(), links)
		if err != nil {
			var known *task.Error
			if !errors.As(err, &known) {
				t.Fatalf("refused without a reason: %v", err)
			}
			if same && inOrder {
				t.Fatal(err)
			}
			return
		}
		if same && !proper {
			t.Fatalf("files in the order %08b are taken", order)
		}
		got, whole := read(t, c)
		if same && inOrder && (!whole || !bytes.Equal(got, disk)) {
			t.Fatalf("the disk is another (%d bytes changed)", n)
		}
	})
}

// read puts the disk together if it is as large as it was. What the chain says of its extents holds for any.
func read(t *testing.T, c *Chain) (disk []byte, whole bool) {
	size := c.Info().Size
	whole = c.Size() == 8*part
	disk = make([]byte, 8*part)
	err := extent.Walk(t.Context(), c, size, 1<<20, func(from, to int64, es []extent.Extent) error {
		last := from
		for _, e := range es {
			if e.Host < last || e.Host >= to || e.Stored <= 0 || e.Size <= 0 || e.Guest < 0 || e.Size > c.Size()-e.Guest || e.Coding == extent.Plain && e.Stored > size-e.Host {
				t.Fatalf("extent %+v in [%d, %d) of %d bytes, a disk of %d", e, from, to, size, c.Size())
			}
			last = e.Host
			if !whole || e.Coding != extent.Plain {
				whole = false
				continue
			}
			r, err := c.Open(t.Context(), e.Host, e.Stored)
			if err != nil {
				return err
			}
			if _, err := io.ReadFull(r, disk[e.Guest:e.Guest+e.Size]); err != nil {
				whole = false // it is cut off
			}
			if err := r.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		var known *task.Error
		if !errors.As(err, &known) {
			t.Fatalf("given up without a reason: %v", err)
		}
		whole = false
	}
	return disk, whole
}
