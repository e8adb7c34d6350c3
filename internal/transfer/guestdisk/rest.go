package guestdisk

import (
	"context"
	"math/bits"
	"sync"

	"github.com/berth-vm/berth/internal/nbd"
)

// grain is the piece of a disk that is known to be fetched or not: a request has to cover it.
const grain = 4 << 10

// rest is what clients have not fetched yet of a disk, one bit a grain.
type rest struct {
	mu   sync.Mutex
	size int64
	bits []uint64
	left int64 // bits that are set
}

// begin notes all that is to be fetched of a disk.
func (r *rest) begin(ctx context.Context, p *pulled) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size, r.left = p.size, 0
	r.bits = make([]uint64, (p.size+64*grain-1)/(64*grain))
	return p.walk(ctx, 0, p.size, func(e nbd.Extent) error {
		if p.wanted(e) {
			r.change(e.Offset/grain, (e.Offset+e.Length+grain-1)/grain, true)
		}
		return ctx.Err()
	})
}

// fetched notes that a part was fetched: the grains that are wholly in it.
func (r *rest) fetched(from, to int64) {
	first, last := (from+grain-1)/grain, to/grain
	if to == r.size { // the last grain may be smaller
		last = (to + grain - 1) / grain
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(first, last, false)
}

// change sets or clears the bits from first up to last.
func (r *rest) change(first, last int64, set bool) {
	for at := first; at < last; {
		word, low := at/64, at%64
		n := min(64-low, last-at)
		mask := ^uint64(0) >> (64 - n) << low
		was := r.bits[word]
		if set {
			r.bits[word] |= mask
		} else {
			r.bits[word] &^= mask
		}
		r.left += int64(bits.OnesCount64(r.bits[word]) - bits.OnesCount64(was))
		at += n
	}
}

// none reports whether all was fetched.
func (r *rest) none() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left == 0
}
