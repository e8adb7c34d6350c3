package decode

import (
	"github.com/berth-vm/berth/internal/transfer/decode/zstd"
)

// fresh is a page that both the decoder and the reader have.
func (z *unzstd) fresh() *zpage {
	z.mu.Lock()
	defer z.mu.Unlock()
	p := &zpage{}
	if n := len(z.free); n > 0 {
		p.buf, z.free = z.free[n-1].buf, z.free[:n-1]
	} else {
		p.buf = make([]byte, zstd.PageSize+zstd.PageSlack)
	}
	p.refs = 2
	return p
}

func (z *unzstd) release(p *zpage) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if p.refs--; p.refs == 0 {
		z.free = append(z.free, p)
	}
}

// Page implements zstd.Pages. It waits for the reader, so there are never more pages than the window and a few.
func (z *unzstd) Page() []byte {
	begin := 0
	if z.last == nil {
		begin = z.d.At()
	} else {
		z.last.end = zstd.PageSize
		_ = z.send() // after a close there is nobody to read what is decoded yet
	}
	z.last = z.fresh()
	z.last.begin = begin
	z.pages = append(z.pages, z.last)
	return z.last.buf
}

// Release implements zstd.Pages. Pages go in the order in which they came.
func (z *unzstd) Release([]byte) {
	z.release(z.pages[0])
	z.pages = z.pages[1:]
}

// send hands over the last page.
func (z *unzstd) send() error {
	select {
	case z.ready <- z.last:
		return nil
	case <-z.stop:
		return errClosed
	}
}

// next checks the sums of one page.
func (z *unzstd) next() chunk {
	var p *zpage
	select {
	case p = <-z.ready:
	case <-z.stop:
		return chunk{err: errClosed}
	}
	c := chunk{p: p.buf[p.begin:p.end], state: p.state, err: p.err, done: func() { z.release(p) }}
	at := p.begin
	for _, f := range p.frames {
		_, _ = z.hash.Write(p.buf[at:f.at]) // never an error
		at = f.at
		if got := z.hash.Sum64() & (1<<32 - 1); f.sum >= 0 && uint64(f.sum) != got {
			c.err = bad(Zstd, f.off, "the data has checksum %08x, the stream says %08x", got, f.sum)
			return c
		}
		z.hash.Reset()
	}
	_, _ = z.hash.Write(p.buf[at:p.end])
	return c
}

func (z *unzstd) close() {
	z.once.Do(func() {
		close(z.stop)
		z.in.close()
	})
}

var _ zstd.Pages = (*unzstd)(nil)
