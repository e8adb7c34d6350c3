package client

import (
	"io"
	"sync"
)

// outgoing is the body of a request that is written and not read: net/http lets it write straight to the connection, in pieces
// as large as it likes, unless it insists on reading.
type outgoing struct {
	write   func(io.Writer) error
	begin   sync.Once     // by whichever of Read, WriteTo and Close comes first
	written chan struct{} // closed when nothing is written any more
	r       *io.PipeReader
	w       *io.PipeWriter
}

func newOutgoing(write func(io.Writer) error) *outgoing {
	r, w := io.Pipe()
	return &outgoing{write: write, written: make(chan struct{}), r: r, w: w}
}

// WriteTo implements io.WriterTo.
func (o *outgoing) WriteTo(w io.Writer) (n int64, err error) {
	first := false
	o.begin.Do(func() { first = true })
	if !first {
		return io.Copy(w, o.r)
	}
	defer close(o.written)
	to := &tally{Writer: w}
	err = o.write(to)
	return to.n, err
}

// Read implements io.Reader.
func (o *outgoing) Read(p []byte) (int, error) {
	o.begin.Do(func() {
		go func() {
			defer close(o.written)
			_ = o.w.CloseWithError(o.write(o.w)) // never fails
		}()
	})
	return o.r.Read(p)
}

// Close implements io.Closer.
func (o *outgoing) Close() error {
	o.begin.Do(func() { close(o.written) })
	return o.r.Close()
}

// end returns when no more data is written; if the connection has ended it stops the writer.
func (o *outgoing) end() {
	_ = o.Close() // never fails
	<-o.written
}

// tally counts what is written.
type tally struct {
	io.Writer
	n int64
}

func (t *tally) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	t.n += int64(n)
	return n, err
}
