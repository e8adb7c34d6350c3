package sequential

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// toy is the smallest format that has everything: the head lists tables, a table lists where clusters are and belong.
// A cluster is plain, or "coded": its first byte stands for all of it, and it is some sectors long, the last of which may
// be shared with others.
type toy struct {
	disk   int64
	tables []int64
}

const (
	toyCluster = 4096
	toyEntries = 8 // of a table, 16 bytes each
	toyCoded   = 1 << 40
)

func (p *toy) Head(head []byte, whole bool) (int64, error) {
	if len(head) < MinHead && !whole {
		return MinHead, nil
	}
	if len(head) < 16 {
		return 0, errors.New("no toy")
	}
	p.disk = int64(binary.BigEndian.Uint64(head))
	p.tables = nil
	for i := range int(binary.BigEndian.Uint64(head[8:])) {
		p.tables = append(p.tables, int64(binary.BigEndian.Uint64(head[16+8*i:])))
	}
	return int64(len(head)), nil
}

func (p *toy) Shape() extent.Shape {
	return extent.Shape{Disk: p.disk, Unit: toyCluster, Coding: extent.Zlib}
}

func (p *toy) Tables(b *Book) {
	for _, off := range p.tables {
		b.Want(Region{Off: off, Len: toyEntries * 16})
	}
}

func (p *toy) Table(b *Book, _ Region, _ int64, piece []byte) error { return p.entries(piece, b.Place) }

func (p *toy) entries(piece []byte, emit func(extent.Extent) error) error {
	for ; len(piece) >= 16; piece = piece[16:] {
		host, guest := int64(binary.BigEndian.Uint64(piece)), int64(binary.BigEndian.Uint64(piece[8:]))
		e := extent.Extent{Host: host, Stored: toyCluster, Guest: guest, Size: toyCluster}
		if host == 0 {
			continue
		}
		if host >= toyCoded {
			sectors := host >> 41
			e.Host = host & (toyCoded - 1)
			e.Coding, e.Stored = extent.Zlib, sectors*sector-e.Host%sector
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}

func (p *toy) Open(f extent.File) (extent.Image, error) {
	head := make([]byte, min(f.Size, MinHead))
	if err := f.Fill(head, 0, "head"); err != nil {
		return nil, err
	}
	if _, err := p.Head(head, true); err != nil {
		return nil, err
	}
	s := p.Shape()
	s.File = f.Size
	return extent.NewIndex(s, func(_ context.Context, emit func(extent.Extent) error) error {
		for _, off := range p.tables {
			err := f.Table(off, toyEntries*16, "table", func(_ int64, q []byte) error { return p.entries(q, emit) })
			if err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// picture is a disk in memory and what is parked beside it.
type picture struct {
	disk  []byte
	parks []byte
}

func (o *picture) Begin(size int64) error {
	if o.disk == nil {
		o.disk = make([]byte, size)
	}
	return nil
}

func (o *picture) Put(e extent.Extent, p []byte) error {
	if e.Guest+e.Size > int64(len(o.disk)) || int64(len(p)) != e.Stored {
		return fmt.Errorf("extent %+v with %d bytes on a disk of %d", e, len(p), len(o.disk))
	}
	if e.Coding != extent.Plain {
		p = bytes.Repeat(p[:1], int(e.Size))
	}
	copy(o.disk[e.Guest:], p)
	return nil
}

func (o *picture) Park(p []byte) (int64, error) {
	o.parks = append(o.parks, p...)
	return int64(len(o.parks) - len(p)), nil
}

func (o *picture) Parked(p []byte, at int64) error {
	if copy(p, o.parks[at:]) != len(p) {
		return errors.New("never parked")
	}
	return nil
}

// shuffled builds a file whose tables and clusters come in random order, coded clusters packed side by side, with
// garbage in between, and the disk it is of.
func shuffled(seed uint64, tables int) (file, disk []byte) {
	r := rand.New(rand.NewPCG(seed, 7))
	n := tables * toyEntries
	disk = make([]byte, n*toyCluster)
	guests := r.Perm(n)
	where := make([]int64, n)
	at := make([]int64, tables)
	file = make([]byte, MinHead)
	if seed%3 == 0 {
		file = file[:16+8*tables] // then something of it lies in the head
	}
	align := func() { file = append(file, make([]byte, -len(file)&(toyCluster-1))...) }
	for _, i := range r.Perm(n + tables + n/4) {
		switch {
		case i >= n+tables: // garbage
			file = append(file, bytes.Repeat([]byte{0xee}, r.IntN(9000))...)
		case i >= n:
			align()
			at[i-n] = int64(len(file))
			file = append(file, make([]byte, toyEntries*16)...)
		case r.IntN(3) > 0:
			fill := byte(1 + i%250)
			host := int64(len(file))
			file = append(file, fill)
			least := sector * int(seed%2) // if they are shorter than a sector, several share one
			file = append(file, make([]byte, least+r.IntN(300)*(1+r.IntN(9)))...)
			where[i] = toyCoded + host + ((int64(len(file))-1)/sector-host/sector+1)<<41
			copy(disk[guests[i]*toyCluster:], bytes.Repeat([]byte{fill}, toyCluster))
		default:
			align()
			where[i] = int64(len(file))
			for range toyCluster {
				file = append(file, byte(r.Uint32()))
			}
			copy(disk[guests[i]*toyCluster:], file[where[i]:])
		}
	}
	file = append(file, make([]byte, 2*sector)...)
	binary.BigEndian.PutUint64(file, uint64(len(disk)))
	binary.BigEndian.PutUint64(file[8:], uint64(tables))
	for i, off := range at {
		binary.BigEndian.PutUint64(file[16+8*i:], uint64(off))
		for j := range toyEntries {
			e := file[off+int64(j)*16:]
			binary.BigEndian.PutUint64(e, uint64(where[i*toyEntries+j]))
			binary.BigEndian.PutUint64(e[8:], uint64(guests[i*toyEntries+j]*toyCluster))
		}
	}
	return file, disk
}

// limits makes a decoder that remembers less than a real one.
type limits struct{ places, wants, runs int }

func (l limits) apply(d *Decoder) {
	d.book.places.max, d.book.wants.max, d.runs = l.places, l.wants, l.runs
}

func stream(file []byte, chunk int, crash bool, l limits) (*picture, *Decoder, error) {
	out := &picture{}
	d := New(&toy{}, out)
	l.apply(d)
	for at, last := 0, int64(-1); at < len(file); {
		n := min(chunk, len(file)-at)
		if _, err := d.Write(file[at : at+n]); err != nil {
			return nil, nil, err
		}
		at += n
		if state := d.State(); crash && state != nil && d.Offset() > last {
			last = d.Offset()
			at = int(last)
			out = &picture{disk: out.disk, parks: out.parks[:d.Parked()]}
			var err error
			if d, err = Resume(&toy{}, out, state); err != nil {
				return nil, nil, err
			}
			l.apply(d)
		}
	}
	_, err := d.Finish(context.Background())
	return out, d, err
}

func TestAnyOrderGivesTheSameDisk(t *testing.T) {
	t.Parallel()
	unlimited := limits{maxPlaces, maxWants, maxRuns}
	for seed := range uint64(12) {
		file, disk := shuffled(seed, 12)
		for name, l := range map[string]limits{
			"unlimited": unlimited, "few places": {5, maxWants, maxRuns}, "few wants": {maxPlaces, 3, maxRuns},
			"few runs": {maxPlaces, maxWants, 9}, "few of all": {4, 2, 20},
		} {
			for _, chunk := range []int{700, 5000, len(file)} {
				for _, crash := range []bool{false, true} {
					out, _, err := stream(file, chunk, crash, l)
					if bad := (*task.Error)(nil); seed%2 == 0 && errors.As(err, &bad) {
						continue // something tiny between two others was gone when its table came, much later
					}
					if err != nil {
						t.Fatalf("seed %d, %s, chunks of %d, crash %t: %v", seed, name, chunk, crash, err)
					}
					if !bytes.Equal(out.disk, disk) {
						t.Fatalf("seed %d, %s, chunks of %d, crash %t: another disk", seed, name, chunk, crash)
					}
				}
			}
		}
	}
}

func TestTablesInFrontParkNothingElse(t *testing.T) {
	t.Parallel()
	file := make([]byte, MinHead)
	binary.BigEndian.PutUint64(file, 2*toyCluster)
	binary.BigEndian.PutUint64(file[8:], 1)
	binary.BigEndian.PutUint64(file[16:], MinHead)
	table := make([]byte, toyCluster)
	binary.BigEndian.PutUint64(table, MinHead+2*toyCluster)
	binary.BigEndian.PutUint64(table[8:], toyCluster)
	file = append(file, table...)
	file = append(file, bytes.Repeat([]byte{0xee}, toyCluster)...) // nobody's
	file = append(file, bytes.Repeat([]byte{5}, toyCluster)...)
	out, _, err := stream(file, 1000, false, limits{maxPlaces, maxWants, maxRuns})
	if err != nil {
		t.Fatal(err)
	}
	if want := MinHead + toyEntries*16; len(out.parks) != want {
		t.Fatalf("%d bytes were parked, want %d: the head and the table", len(out.parks), want)
	}
	if !bytes.Equal(out.disk[toyCluster:], bytes.Repeat([]byte{5}, toyCluster)) {
		t.Fatal("the cluster is not where it belongs")
	}
}

// Three coded clusters in one sector, and the table that tells of the middle one comes behind them, as when QEMU fills up
// a cluster before it allocates the table.
func TestLatecomersAreFoundInTheTailTheyWentByAs(t *testing.T) {
	t.Parallel()
	const first, second, data = MinHead, MinHead + 2*toyCluster, MinHead + toyCluster
	file := make([]byte, MinHead+3*toyCluster)
	binary.BigEndian.PutUint64(file, 3*toyCluster)
	binary.BigEndian.PutUint64(file[8:], 2)
	binary.BigEndian.PutUint64(file[16:], first)
	binary.BigEndian.PutUint64(file[24:], second)
	for i, at := range []int{first, second, first + 16} {
		host := data + 50*i
		file[host] = byte(i + 1)
		binary.BigEndian.PutUint64(file[at:], uint64(toyCoded+host+1<<41))
		binary.BigEndian.PutUint64(file[at+8:], uint64(i*toyCluster))
	}
	for _, crash := range []bool{false, true} {
		out, d, err := stream(file, toyCluster, crash, limits{maxPlaces, maxWants, maxRuns})
		if err != nil {
			t.Fatalf("crash %t: %v", crash, err)
		}
		for i := range 3 {
			if got := out.disk[i*toyCluster]; got != byte(i+1) {
				t.Errorf("crash %t: cluster %d begins with %d", crash, i, got)
			}
		}
		if d.put.coded != 3 {
			t.Errorf("crash %t: %d were placed as they came, not all 3", crash, d.put.coded)
		}
	}
}

// What went by as one cluster's data and is claimed by another later cannot be read again: no disk may come of it.
func TestBytesThatAreGoneAreMissed(t *testing.T) {
	t.Parallel()
	file := make([]byte, MinHead+3*toyCluster)
	binary.BigEndian.PutUint64(file, 4*toyCluster)
	binary.BigEndian.PutUint64(file[8:], 2)
	binary.BigEndian.PutUint64(file[16:], MinHead)
	binary.BigEndian.PutUint64(file[24:], MinHead+2*toyCluster)
	for i, off := range []int{MinHead, MinHead + 2*toyCluster} {
		binary.BigEndian.PutUint64(file[off:], MinHead+toyCluster)
		binary.BigEndian.PutUint64(file[off+8:], uint64(i*toyCluster))
	}
	_, _, err := stream(file, 1000, false, limits{maxPlaces, maxWants, maxRuns})
	var bad *task.Error
	if !errors.As(err, &bad) || bad.Reason != task.BadImage {
		t.Fatalf("it ends with %v", err)
	}
}

func TestStateIsBounded(t *testing.T) {
	t.Parallel()
	d := New(&toy{}, &picture{})
	d.begun = true
	for i := range int64(maxRuns) {
		d.parks.runs = append(d.parks.runs, run{i * (1 << 24), i * (1 << 23)})
	}
	for i := range int64(maxTails) {
		d.tails = append(d.tails, tail{i, make([]byte, sector-1)})
	}
	if n := len(d.State()); n > 9<<18 {
		t.Fatalf("a checkpoint has %d bytes", n)
	}
}
