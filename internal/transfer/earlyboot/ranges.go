package earlyboot

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ranges are the parts of the disk that are in use. There are as many as requests and fetches in progress, a few dozen.
type ranges struct {
	mu    sync.Mutex
	freed sync.Cond
	held  [][2]int64
}

// hold waits until no part of [from, to) is in use, and holds it until the returned function is called.
func (r *ranges) hold(from, to int64) (release func()) {
	mine := [2]int64{from, to}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed.L == nil {
		r.freed.L = &r.mu
	}
	for slices.ContainsFunc(r.held, func(h [2]int64) bool { return h[0] < to && from < h[1] }) {
		r.freed.Wait()
	}
	r.held = append(r.held, mine)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		at := slices.Index(r.held, mine)
		r.held = slices.Delete(r.held, at, at+1)
		r.freed.Broadcast()
	}
}

// bits is a set of clusters.
type bits []uint64

func newBits(size int64) bits { return make(bits, size/cluster/64+1) }

func (b bits) has(c int64) bool { return b[c/64]&(1<<(c%64)) != 0 }
func (b bits) add(c int64)      { b[c/64] |= 1 << (c % 64) }

// gate lets the fill wait while a guest waits for the source.
type gate struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0
}

func (g *gate) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n++; g.n == 1 {
		g.idle = make(chan struct{})
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 {
		close(g.idle)
	}
}

// mostWait bounds how long a guest that never stops reading delays the fill: servers close connections that are not read, and the
// fill has to end.
const mostWait = 100 * time.Millisecond

// wait returns when no guest waits for the source, or has kept others waiting for long enough.
func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	n, idle := g.n, g.idle
	g.mu.Unlock()
	if n == 0 {
		return
	}
	t := time.NewTimer(mostWait)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-ctx.Done():
	}
}

// streams follows guests that read in order, a few at a time, and says how much of what comes next is worth fetching.
type streams struct {
	mu   sync.Mutex
	next int
	all  [8]stream
}

type stream struct{ end, ahead int64 }

const (
	firstAhead = 4 * cluster
	mostAhead  = 1 << 20
)

// read notes a read of [from, to) and returns how many bytes behind it to fetch; none of a guest that jumps.
func (s *streams) read(from, to int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if at := &s.all[i]; at.end > 0 && from >= at.end-cluster && from <= at.end+2*cluster {
			at.end, at.ahead = max(at.end, to), min(max(2*at.ahead, firstAhead), mostAhead)
			return at.ahead
		}
	}
	s.all[s.next] = stream{end: to}
	s.next = (s.next + 1) % len(s.all)
	return 0
}
