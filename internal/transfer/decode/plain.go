package decode

import "io"

// plain hands a stream through that is not compressed, read ahead like the others.
type plain struct {
	src  io.Reader
	free chan []byte
	out  int64
}

func newPlain(src io.Reader, o Options) Reader {
	p := &plain{src: src, free: make(chan []byte, depth+2)}
	for range cap(p.free) {
		p.free <- nil
	}
	if o.Resume != nil {
		p.out = o.Resume.Out
	}
	return newAhead(None, p, o)
}

func (p *plain) next() chunk {
	buf := <-p.free
	if buf == nil {
		buf = make([]byte, chunkSize)
	}
	begin := int(p.out & 4095)
	n := begin
	var err error
	for n < len(buf) && err == nil {
		var m int
		m, err = p.src.Read(buf[n:])
		n += m
	}
	p.out += int64(n - begin)
	c := chunk{p: buf[begin:n], err: err, done: func() { p.free <- buf }}
	if err == nil {
		c.state = &State{Kind: None, In: p.out, Out: p.out}
	}
	return c
}

func (*plain) close() {}
