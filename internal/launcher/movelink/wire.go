package movelink

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// piece is how many bytes are copied at a time.
const piece = 256 << 10

// wire is the network below a TLS connection. TLS has records of 16 KiB, and writes and reads one at a time; if both ends of a
// move share few processors, this cost limits the speed. So many records are read and written at a time, after the peer is
// authenticated: before that no memory is allocated for it.
type wire struct {
	net.Conn
	in   *bufio.Reader // nil: not yet
	here bool          // only what has come already is read

	mu      sync.Mutex
	out     *bufio.Writer
	gathers bool // what is written waits for the rest of its piece
}

// noMore is not the end, nor a fault: TLS goes on afterwards where it was, as after a deadline.
type noMore struct{}

func (noMore) Error() string   { return "no more has come so far" }
func (noMore) Timeout() bool   { return true }
func (noMore) Temporary() bool { return true }

func (w *wire) Read(b []byte) (int, error) {
	if w.in == nil {
		return w.Conn.Read(b)
	}
	if w.here && w.in.Buffered() == 0 {
		return 0, noMore{}
	}
	return w.in.Read(b)
}

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gathers {
		return w.out.Write(b)
	}
	return w.Conn.Write(b)
}

// gather begins to hold back what is written, or sends what was held.
func (w *wire) gather(yes bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gathers = yes
	return w.out.Flush()
}

// bulk is a TLS connection over a wire that reads and writes many records at a time.
type bulk struct {
	*tls.Conn
	wire *wire
}

// newBulk makes a bulk of a connection whose two sides are authenticated, and that has no other user.
func newBulk(c *tls.Conn) bulk {
	w := c.NetConn().(*wire)
	w.in, w.out = bufio.NewReaderSize(w.Conn, piece), bufio.NewWriterSize(w.Conn, piece+piece/16) // records are larger than what is in them
	return bulk{c, w}
}

// Write returns when all of it is on its way.
func (c bulk) Write(b []byte) (int, error) {
	_ = c.wire.gather(true) // nothing was held
	n, err := c.Conn.Write(b)
	return n, errors.Join(err, c.wire.gather(false))
}

// Read waits for one record, and takes those with it that have come too.
func (c bulk) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.here = true
	defer func() { c.wire.here = false }()
	for err == nil && n < len(b) {
		var more int
		more, err = c.Conn.Read(b[n:])
		n += more
	}
	if errors.Is(err, noMore{}) {
		err = nil
	}
	return n, err
}
