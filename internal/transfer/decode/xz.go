package decode

import (
	"io"
	"runtime"
	"sync"

	"github.com/berth-vm/berth/pkg/lzma"
)

// unxz decodes an xz file with several workers, each of which decodes one block at a time. A reader of the file's frames
// (frames.go) cuts it into blocks and feeds them to the workers; next collects their pages in the order of the file.
//
// What is in memory: packets, the compressed chunks that no worker has come to yet, and pages of output, which stay until
// they were read and the dictionary has passed over them. A worker whose block is not the one being read stops when it
// has its share of pages, so workers fall into a rhythm in which each is ahead by as much as memory allows. The worker
// whose block is being read never waits for the others, so they cannot block each other.
type unxz struct {
	frames *frames
	order  chan *xzBlock // in the order of the file
	jobs   chan *xzBlock
	stop   chan struct{}
	once   sync.Once
	pool   pagePool

	cur  *xzBlock // being collected
	from int64    // where the last state was, in decoded bytes
	step int64    // Options.Every
}

// What is in flight. With two workers and the default memory, the one behind may have 12 pages: half a block as xz makes
// them (24 MiB), which is where the two keep each other's pace. Packets are about as much again, compressed.
const (
	packetMemory = 6 << 20
	maxWorkers   = 5
)

// cores is how many there are, read before a program asks for more threads to wait for its disk with: blocks beyond them would
// only cost memory.
var cores = runtime.GOMAXPROCS(0)

func newXz(src io.Reader, o Options) (Reader, error) {
	workers := min(runtime.GOMAXPROCS(0), cores, maxWorkers)
	x := &unxz{
		order: make(chan *xzBlock, workers+1),
		jobs:  make(chan *xzBlock, 1),
		stop:  make(chan struct{}),
		step:  o.Every,
	}
	x.pool.cond.L = &x.pool.mu
	x.pool.share = max(2, int(o.Memory*3/16)/lzma.PageSize/max(1, workers-1))
	x.frames = &frames{memory: o.Memory, stop: x.stop, order: x.order, jobs: x.jobs, free: make(chan []byte, packetMemory/lzma.MaxPacked)}
	for range cap(x.frames.free) {
		x.frames.free <- nil
	}
	if o.Resume != nil {
		if err := x.frames.restore(o.Resume); err != nil {
			return nil, err
		}
		x.from = o.Resume.Out
	}
	x.frames.in = newInput(src, o)
	for range workers {
		go x.work()
	}
	go x.frames.run()
	return newAhead(Xz, x, o), nil
}

// next collects one page.
func (x *unxz) next() chunk {
	for {
		if x.cur == nil {
			select {
			case x.cur = <-x.order:
			case <-x.stop:
				return chunk{err: errClosed}
			}
			if x.cur.err != nil {
				return chunk{err: x.cur.err}
			}
			x.pool.lead(x.cur)
		}
		select {
		case c, more := <-x.cur.out:
			if !more {
				x.cur = nil
				continue
			}
			if s := x.cur.state; s != nil && s.Out-x.from >= x.step {
				c.state, x.from = s, s.Out
			}
			x.cur.state = nil
			x.pool.wake() // there is room in out
			return c
		case <-x.stop:
			return chunk{err: errClosed}
		}
	}
}

func (x *unxz) close() {
	x.once.Do(func() {
		close(x.stop)
		x.pool.close()
		x.frames.in.close()
	})
}

// page is a page of output. It is free when the reader and the decoder are both done with it.
type page struct {
	buf   []byte
	owner *xzBlock
	refs  int
}

// pagePool is the memory for output.
type pagePool struct {
	mu     sync.Mutex
	cond   sync.Cond
	free   []*page
	head   *xzBlock // the block being read
	share  int      // how many pages a block may have that is not the head
	closed bool
}

// take waits until b may have one more page.
func (p *pagePool) take(b *xzBlock) (*page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && b.held >= p.share && (b != p.head || len(b.out) > 1) {
		p.cond.Wait()
	}
	if p.closed {
		return nil, errClosed
	}
	b.held++
	pg := &page{}
	if n := len(p.free); n > 0 {
		pg, p.free = p.free[n-1], p.free[:n-1]
	} else {
		pg.buf = make([]byte, lzma.PageSize)
	}
	pg.owner, pg.refs = b, 2
	return pg, nil
}

func (p *pagePool) release(pg *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pg.refs--; pg.refs == 0 {
		pg.owner.held--
		p.free = append(p.free, pg)
		p.cond.Broadcast()
	}
}

func (p *pagePool) lead(b *xzBlock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head = b
	p.cond.Broadcast()
}

func (p *pagePool) wake() {
	p.mu.Lock() // so that no goroutine misses it between looking and waiting
	defer p.mu.Unlock()
	p.cond.Broadcast()
}

func (p *pagePool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.cond.Broadcast()
}
