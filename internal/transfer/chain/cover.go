package chain

import (
	"math/bits"

	"github.com/berth-vm/berth/internal/task"
)

// cover is a set of parts of a disk, in grains. It has a bit for each grain, but none for the stretches that are in it as a whole or not at all.
type cover struct {
	grain  int64
	chunks map[int64]*chunk
	bytes  int64 // of memory, about
}

const (
	chunkBits = 1 << 15
	// maxCover bounds the memory of a cover: every second cluster of 64 KiB of 8 TiB.
	maxCover = 16 << 20
	entry    = 64 // bytes of memory that an entry of the map takes, about
)

type chunk struct {
	set  int
	bits *[chunkBits / 64]uint64 // nil: all are set
}

func newCover(grain int64) *cover { return &cover{grain: grain, chunks: map[int64]*chunk{}} }

// add puts [at, at+n) in. What is smaller than a grain counts as one.
func (c *cover) add(at, n int64) error {
	first, end := at/c.grain, (at+n+c.grain-1)/c.grain
	for first < end {
		number, from := first/chunkBits, first%chunkBits
		count := min(end-first, chunkBits-from)
		if err := c.addIn(number, from, count); err != nil {
			return err
		}
		first += count
	}
	return nil
}

func (c *cover) addIn(number, from, count int64) error {
	k := c.chunks[number]
	switch {
	case k == nil:
		k = &chunk{bits: new([chunkBits / 64]uint64)}
		c.chunks[number] = k
		c.bytes += entry + chunkBits/8
	case k.bits == nil:
		return nil
	}
	if c.bytes > maxCover {
		return task.Errorf(task.UnsupportedImage, "the increments have parts of %d bytes in too many places of the disk; "+
			"make them one image with: qemu-img convert", c.grain)
	}
	for i := from; i < from+count; {
		w, bit := i/64, i%64
		n := min(64-bit, from+count-i)
		mask := (^uint64(0) >> (64 - n)) << bit
		k.set += bits.OnesCount64(mask &^ k.bits[w])
		k.bits[w] |= mask
		i += n
	}
	if k.set == chunkBits {
		k.bits = nil
		c.bytes -= chunkBits / 8
	}
	return nil
}

// run returns how many bytes from at on, at most n, are all in the set or all not in it.
func (c *cover) run(at, n int64) (length int64, in bool) {
	end := at + n
	in = c.has(at / c.grain)
	next := at
	for next < end {
		g := next / c.grain
		k := c.chunks[g/chunkBits]
		if k == nil || k.bits == nil {
			if (k != nil) != in {
				break
			}
			next = (g/chunkBits + 1) * chunkBits * c.grain
			continue
		}
		if k.bits[g%chunkBits/64]>>(g%64)&1 == 1 != in {
			break
		}
		next = (g + 1) * c.grain
	}
	return min(next, end) - at, in
}

func (c *cover) has(g int64) bool {
	k := c.chunks[g/chunkBits]
	return k != nil && (k.bits == nil || k.bits[g%chunkBits/64]>>(g%64)&1 == 1)
}
