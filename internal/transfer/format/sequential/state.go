package sequential

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// errState reports a damaged checkpoint: the transfer starts over.
var errState = errors.New("checkpoint of the image decoder is damaged")

const stateVersion = 1

// State returns what Resume needs to continue from Offset, once everything put and parked so far is durable. It is at most 2 MiB,
// a few kilobytes for most images; nil while there is nothing to continue from. The tables themselves are not in it: they are
// parked.
func (d *Decoder) State() []byte {
	if !d.begun {
		return nil
	}
	b := []byte{stateVersion}
	for _, n := range []int64{d.need, d.book.shape.Disk, d.book.pos, d.parks.n, d.put.plain, d.put.coded} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.LittleEndian.AppendUint64(b, d.put.digest)
	b = append(b, flag(d.flood))
	last := run{}
	b = binary.AppendUvarint(b, uint64(len(d.parks.runs)))
	for _, r := range d.parks.runs {
		b = binary.AppendUvarint(b, uint64(r.host-last.host))
		b = binary.AppendUvarint(b, uint64(r.at-last.at))
		last = r
	}
	var passing []want
	for _, w := range d.book.wants.items {
		if w.Passing {
			passing = append(passing, w)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(passing)))
	for _, w := range passing {
		for _, n := range []int64{w.Off, w.Len, w.Tag, w.at} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	recent := d.tails
	if i, _ := recent.search(d.book.pos - d.book.memory()); i < len(recent) {
		recent = recent[i:]
	}
	b = binary.AppendUvarint(b, uint64(len(recent)))
	for _, t := range recent {
		b = binary.AppendUvarint(b, uint64(t.host))
		b = binary.AppendUvarint(b, uint64(len(t.p)))
		b = append(b, t.p...)
	}
	return b
}

// Resume makes a decoder that continues where State was taken. It reads the tables that have already come back from out, after
// Begin.
func Resume(plan Plan, out extent.Output, state []byte) (*Decoder, error) {
	d := New(plan, out)
	passing, err := d.restore(state)
	if err != nil {
		return nil, err
	}
	if err := out.Begin(d.book.shape.Disk); err != nil {
		return nil, err
	}
	head := make([]byte, d.need)
	if _, err := d.parks.ReadAt(head, 0); err != nil {
		return nil, err
	}
	need, err := plan.Head(head, d.need < MinHead)
	if err != nil {
		return nil, err
	}
	if shape := plan.Shape(); need != d.need || shape.Disk != d.book.shape.Disk {
		return nil, errState
	}
	d.begun, d.book.shape = true, plan.Shape()
	if d.flood {
		return d, nil
	}
	plan.Tables(d.book)
	d.book.wants.items = slices.DeleteFunc(d.book.wants.items, func(w want) bool { return w.Passing })
	slices.SortFunc(d.book.wants.items, d.book.wants.compare)
	for _, w := range passing {
		d.book.wants.push(w)
	}
	d.book.replay = true
	err = d.behind()
	d.book.replay = false
	return d, err
}

// restore reads what State wrote.
func (d *Decoder) restore(state []byte) ([]want, error) {
	r := reader{state}
	if r.byte() != stateVersion {
		return nil, errState
	}
	for _, n := range []*int64{&d.need, &d.book.shape.Disk, &d.book.pos, &d.parks.n, &d.put.plain, &d.put.coded} {
		*n = r.int()
	}
	d.put.digest = r.fixed()
	d.flood = r.byte() == 1
	last := run{}
	for n := min(r.int(), maxRuns+1); n > 0 && r.p != nil; n-- {
		last = run{last.host + r.int(), last.at + r.int()}
		d.parks.runs = append(d.parks.runs, last)
		if last.at > d.parks.n || last.host > d.book.pos || last.at < 0 || last.host < 0 {
			return nil, errState
		}
	}
	var passing []want
	for n := r.int(); n > 0 && r.p != nil; n-- {
		w := want{Region: Region{Off: r.int(), Len: r.int(), Tag: r.int(), Passing: true}, at: r.int()}
		if w.at >= w.Len || w.Off > 1<<62 || w.Len > 1<<32 {
			return nil, errState
		}
		passing = append(passing, w)
	}
	for n := r.int(); n > 0 && r.p != nil; n-- {
		d.tails = append(d.tails, tail{r.int(), r.bytes(r.int())})
	}
	if r.p == nil || len(r.p) != 0 || d.need > MaxHead || d.need > d.book.pos || d.parks.n > d.book.pos {
		return nil, errState
	}
	if d.flood {
		d.book.forget()
	}
	return passing, nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// reader takes numbers off a slice; p is nil once there were too few.
type reader struct{ p []byte }

func (r *reader) int() int64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 || v > 1<<62 {
		r.p = nil
		return 0
	}
	r.p = r.p[n:]
	return int64(v)
}

func (r *reader) byte() byte {
	if len(r.p) == 0 {
		r.p = nil
		return 0
	}
	b := r.p[0]
	r.p = r.p[1:]
	return b
}

func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.p)) {
		r.p = nil
		return nil
	}
	b := slices.Clone(r.p[:n])
	r.p = r.p[n:]
	return b
}

func (r *reader) fixed() uint64 {
	if len(r.p) < 8 {
		r.p = nil
		return 0
	}
	v := binary.LittleEndian.Uint64(r.p)
	r.p = r.p[8:]
	return v
}
