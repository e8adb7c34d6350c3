package decode

import (
	"bytes"

	"github.com/berth-vm/berth/pkg/lzma"
)

// xzBlock is one block on its way through unxz.
type xzBlock struct {
	err   error // nothing but an error, or io.EOF
	dict  int
	at    int64  // where its output begins in the decoded file
	check check  // which checksum follows
	state *State // in front of it

	packets chan packet // from the frames; closed after the last
	out     chan chunk  // from the worker, in order; closed after the last
	sum     []byte      // the checksum it should have; set before packets is closed
	end     int64       // where it ends in the source; set before packets is closed
	held    int         // pages it has; guarded by the pool
}

// packet is one LZMA2 chunk.
type packet struct {
	lzma.Header
	data []byte
	off  int64
	err  error // instead: the file ends here or makes no sense
}

// queue is how many pages can wait in a block's out; the pool's share is smaller where that matters.
const queue = 64

func (x *unxz) work() {
	var d lzma.Decoder
	for {
		select {
		case b := <-x.jobs:
			w := blockWriter{x: x, b: b, d: &d, digest: newDigest(b.check), begin: int(b.at & 4095)}
			if err := w.decode(); err != nil {
				_ = w.send(chunk{err: err}) // after a close there is no reader to tell
			}
			d.Finish(&w)
			close(b.out)
		case <-x.stop:
			return
		}
	}
}

// blockWriter decodes one block. It is the lzma.Pages of its decoder.
type blockWriter struct {
	x      *unxz
	b      *xzBlock
	d      *lzma.Decoder
	digest *digest
	pages  []*page // that the decoder has, oldest first
	last   *page   // the one that is being filled
	begin  int     // where in it the output begins
}

func (w *blockWriter) decode() error {
	w.d.Reset(w.b.dict, w.begin)
	for {
		var p packet
		var more bool
		select {
		case p, more = <-w.b.packets:
		case <-w.x.stop:
			return errClosed
		}
		if !more {
			break
		}
		if p.err != nil {
			return p.err
		}
		err := w.d.Chunk(p.Header, p.data, w)
		w.x.frames.free <- p.data[:0]
		if err != nil {
			if _, own := err.(lzma.Error); own { //nolint:errorlint // it comes straight from there
				err = bad(Xz, p.off, "%w", err)
			}
			return err
		}
	}
	if w.last != nil {
		if err := w.emit(w.d.At() - (w.d.At()-1)&^(lzma.PageSize-1)); err != nil {
			return err
		}
	}
	if got := w.digest.sum(); !bytes.Equal(got, w.b.sum) {
		return bad(Xz, w.b.end, "the data of the block has checksum %x, the stream says %x", got, w.b.sum)
	}
	return nil
}

// emit hands over the page that was being filled, up to end.
func (w *blockWriter) emit(end int) error {
	pg := w.last
	w.last = nil
	p := pg.buf[w.begin:end]
	w.begin = 0
	w.digest.write(p)
	return w.send(chunk{p: p, done: func() { w.x.pool.release(pg) }})
}

func (w *blockWriter) send(c chunk) error {
	select {
	case w.b.out <- c:
		return nil
	case <-w.x.stop:
		return errClosed
	}
}

// Page implements lzma.Pages.
func (w *blockWriter) Page() ([]byte, error) {
	if w.last != nil {
		if err := w.emit(lzma.PageSize); err != nil {
			return nil, err
		}
	}
	pg, err := w.x.pool.take(w.b)
	if err != nil {
		return nil, err
	}
	w.last = pg
	w.pages = append(w.pages, pg)
	return pg.buf, nil
}

// Release implements lzma.Pages. Pages go in the order in which they came.
func (w *blockWriter) Release([]byte) {
	w.x.pool.release(w.pages[0])
	w.pages = w.pages[1:]
}
