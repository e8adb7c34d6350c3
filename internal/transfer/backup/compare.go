package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/chain"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

const (
	// compareStep is how much is compared at a time.
	compareStep = 1 << 20
	// compareWindow bounds the list of extents of the backup that is in memory.
	compareWindow = 256 << 20
	// compareSkip is how far a reader of the backup reads on without need, which costs less than to begin again.
	compareSkip = 4 << 20
)

// Compare reads a disk, and the same disk in a backup of a set, and returns the disk as an increment over that backup. It goes by the bytes
// alone: it does not matter who wrote to the disk since, or whether the machine crashed. Of the backup, nothing is believed whose sum was not
// compared.
func Compare(ctx context.Context, files Files, w Which, s Source) (Source, error) {
	below, err := Open(ctx, files, w)
	if err != nil {
		return Source{}, err
	}
	defer below.Close() // it was only read
	c := &comparison{disk: s.Disk, changed: newClusterSet(s.Size), data: newClusterSet(s.Size), known: newClusterSet(s.Size)}
	if err := c.withBackup(ctx, below); err != nil {
		return Source{}, fmt.Errorf("compare disk %s with backup %s: %w", s.Name, w.Checkpoint, err)
	}
	if err := c.rest(ctx); err != nil {
		return Source{}, err
	}
	s.Data, s.Changed = c.data.list, c.changed.list
	return s, nil
}

// WithoutZeroes reads a disk that does not tell where it has data, and returns it as one that does.
func WithoutZeroes(ctx context.Context, s Source) (Source, error) {
	c := &comparison{disk: s.Disk, changed: newClusterSet(s.Size), data: newClusterSet(s.Size), known: newClusterSet(s.Size)}
	if err := c.rest(ctx); err != nil {
		return Source{}, err
	}
	s.Data = c.data.list
	return s, nil
}

// comparison is what was found out about a disk.
type comparison struct {
	disk    encode.Disk
	changed clusterSet
	data    clusterSet // that hold anything but zeroes
	known   clusterSet // that were looked at; the others are zeroes in the backup
}

// withBackup compares what the backup has with the disk.
func (c *comparison) withBackup(ctx context.Context, below *chain.Chain) error {
	in := &forward{ctx: ctx, from: below, end: below.Info().Size}
	defer in.close()
	theirs, ours := make([]byte, compareStep), make([]byte, compareStep)
	return extent.Walk(ctx, below, in.end, compareWindow, func(_, _ int64, es []extent.Extent) error {
		for _, e := range es {
			if e.Coding != extent.Plain || e.Guest%granularity != 0 { // none that this package has written
				c.unsure(e)
				continue
			}
			for done := int64(0); done < e.Size; {
				p := theirs[:min(int64(len(theirs)), e.Size-done)]
				if err := in.readAt(p, e.Host+done); err != nil {
					return err
				}
				if err := c.piece(p, ours[:len(p)], e.Guest+done); err != nil {
					return err
				}
				done += int64(len(p))
			}
		}
		return nil
	})
}

// unsure takes what an extent speaks of for changed.
func (c *comparison) unsure(e extent.Extent) {
	for n := e.Guest / granularity; n*granularity < min(e.Guest+e.Size, c.disk.Size); n++ {
		c.known.add(n)
		c.changed.add(n)
		c.data.add(n)
	}
}

// piece compares bytes of the backup with those at the same place of the disk, cluster by cluster.
func (c *comparison) piece(theirs, ours []byte, at int64) error {
	if err := c.read(ours, at); err != nil {
		return err
	}
	for len(theirs) > 0 && at < c.disk.Size {
		n := min(len(theirs), granularity)
		whole := n == granularity || at+int64(n) >= c.disk.Size // the last cluster of the backup may have been cut
		number := at / granularity
		c.known.add(number)
		if !whole || !bytes.Equal(theirs[:n], ours[:n]) {
			c.changed.add(number)
		}
		if !whole || !zeropage.IsZero(ours[:n]) {
			c.data.add(number)
		}
		theirs, ours, at = theirs[n:], ours[n:], at+int64(n)
	}
	return nil
}

// rest looks for data where the backup has none.
func (c *comparison) rest(ctx context.Context) error {
	buf := make([]byte, granularity)
	for from := int64(0); from < c.disk.Size; from += compareWindow {
		places, err := c.disk.Data(ctx, from, min(c.disk.Size, from+compareWindow))
		if err != nil {
			return err
		}
		for _, p := range places {
			for n := p[0] / granularity; n*granularity < p[0]+p[1]; n++ {
				if err := ctx.Err(); err != nil {
					return err
				}
				if c.known.has(n) {
					continue
				}
				c.known.add(n)
				if err := c.read(buf, n*granularity); err != nil {
					return err
				}
				if !zeropage.IsZero(buf) {
					c.changed.add(n)
					c.data.add(n)
				}
			}
		}
	}
	return nil
}

// read reads from the disk. What lies behind its end is zeroes.
func (c *comparison) read(p []byte, at int64) error {
	inside := p[:max(0, min(int64(len(p)), c.disk.Size-at))]
	clear(p[len(inside):])
	if n, err := c.disk.ReadAt(inside, at); n < len(inside) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// forward reads a blob at places of which most lie a little behind the one before.
type forward struct {
	ctx  context.Context
	from *chain.Chain
	end  int64
	in   io.ReadCloser // nil: none is open
	at   int64         // where in is
}

func (f *forward) readAt(p []byte, off int64) error {
	if f.in == nil || off < f.at || off > f.at+compareSkip {
		f.close()
		var err error
		if f.in, err = f.from.Open(f.ctx, off, f.end-off); err != nil {
			return err
		}
		f.at = off
	}
	skipped, err := io.CopyN(io.Discard, f.in, off-f.at)
	f.at += skipped
	if err == nil {
		var n int
		n, err = io.ReadFull(f.in, p)
		f.at += int64(n)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return task.Errorf(task.SourceTruncated, "the backup ends at byte %d: %w", f.at, io.ErrUnexpectedEOF)
	}
	return err
}

func (f *forward) close() {
	if f.in != nil {
		_ = f.in.Close() // abandoned on purpose
		f.in = nil
	}
}

// clusterSet is a set of clusters of a disk: 2 MiB of memory for 1 TiB.
type clusterSet struct {
	size int64
	bits []uint64
}

func newClusterSet(size int64) clusterSet {
	return clusterSet{size: size, bits: make([]uint64, ((size+granularity-1)/granularity+63)/64)}
}

func (s clusterSet) add(n int64)      { s.bits[n/64] |= 1 << (n % 64) }
func (s clusterSet) has(n int64) bool { return s.bits[n/64]>>(n%64)&1 != 0 }

// list returns the ranges of [from, to) that are in the set, in order.
func (s clusterSet) list(_ context.Context, from, to int64) ([][2]int64, error) {
	var out [][2]int64
	for n := from / granularity; n*granularity < to; n++ {
		if !s.has(n) {
			continue
		}
		begin, end := max(from, n*granularity), min(to, (n+1)*granularity)
		if last := len(out) - 1; last >= 0 && out[last][0]+out[last][1] == begin {
			out[last][1] += end - begin
		} else {
			out = append(out, [2]int64{begin, end - begin})
		}
	}
	return out, nil
}
