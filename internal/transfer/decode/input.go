package decode

import (
	"errors"
	"io"
	"sync"
)

// The sizes of input's blocks. A decoder that stops within an item gets the next block with the rest of the last one before it, in
// the headroom; every item that deflate or zstd read as a whole is smaller than that.
const (
	blockSize = 256 << 10
	headroom  = 4 << 10
)

// input reads the source on a goroutine of its own, some blocks ahead of the decoder. It keeps the source's error apart
// from the decoder's: the one may be worth a retry, the other never is.
type input struct {
	blocks chan block
	free   chan []byte
	stop   chan struct{}
	once   sync.Once

	cur  []byte // memory of rest
	rest []byte // read from the source and not yet taken
	off  int64  // of rest's beginning in the source
	eof  bool   // nothing comes after rest
	err  error  // the source's own, never io.EOF
}

type block struct {
	buf []byte
	n   int
	err error
}

func newInput(src io.Reader, o Options) *input {
	const ahead = 3
	in := &input{blocks: make(chan block, ahead), free: make(chan []byte, ahead+2), stop: make(chan struct{})}
	for range cap(in.free) {
		in.free <- nil
	}
	if o.Resume != nil {
		in.off = o.Resume.In
	}
	go in.run(src)
	return in
}

func (in *input) run(src io.Reader) {
	for {
		var b block
		select {
		case b.buf = <-in.free:
		case <-in.stop:
			return
		}
		if b.buf == nil {
			b.buf = make([]byte, headroom+blockSize)
		}
		for b.n < blockSize && b.err == nil {
			var n int
			n, b.err = src.Read(b.buf[headroom+b.n:])
			b.n += n
		}
		select {
		case in.blocks <- b:
		case <-in.stop:
			return
		}
		if b.err != nil {
			return
		}
	}
}

// more appends the next block to rest, which has at most headroom bytes left. It returns io.EOF at the end.
func (in *input) more() error {
	if in.eof {
		return io.EOF
	}
	if in.err != nil {
		return in.err
	}
	var b block
	select {
	case b = <-in.blocks:
	case <-in.stop:
		return errClosed
	}
	if b.err != nil {
		if in.eof = errors.Is(b.err, io.EOF); !in.eof {
			in.err = b.err
		}
	}
	begin := headroom - len(in.rest)
	copy(b.buf[begin:headroom], in.rest)
	in.rest = b.buf[begin : headroom+b.n]
	if in.cur != nil {
		in.free <- in.cur
	}
	in.cur = b.buf
	if b.n == 0 && b.err != nil {
		return b.err
	}
	return nil
}

// take drops n bytes of rest.
func (in *input) take(n int) {
	in.rest = in.rest[n:]
	in.off += int64(n)
}

// byte takes one byte.
func (in *input) byte() (byte, error) {
	if len(in.rest) == 0 {
		if err := in.more(); err != nil {
			return 0, err
		}
	}
	b := in.rest[0]
	in.take(1)
	return b, nil
}

// need makes at least n bytes of rest, n <= headroom. It is io.EOF if the source ends before.
func (in *input) need(n int) error {
	for len(in.rest) < n {
		if err := in.more(); err != nil {
			return err
		}
	}
	return nil
}

// Read implements io.Reader, for decoders from elsewhere.
func (in *input) Read(p []byte) (int, error) {
	if len(in.rest) == 0 {
		if err := in.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.rest)
	in.take(n)
	return n, nil
}

// truncated returns the error for a stream that ends too early.
func (in *input) truncated(kind Kind, err error) error {
	if errors.Is(err, io.EOF) {
		return bad(kind, in.off, "the stream ends in the middle")
	}
	return err
}

func (in *input) close() { in.once.Do(func() { close(in.stop) }) }
