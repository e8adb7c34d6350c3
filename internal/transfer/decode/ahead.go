package decode

import (
	"errors"
	"sync"

	"github.com/berth-vm/berth/internal/task"
)

// chunkSize is how much a decoder hands over at a time: large enough that the hand-over costs nothing, small enough that
// the bytes are still in the cache of the core that looks at them next.
const chunkSize = 1 << 20

// chunk is a piece of decoded stream on its way to the reader.
type chunk struct {
	p     []byte
	state *State // the newest state at or before the end of p, nil if the decoder found none since the last chunk
	err   error  // after p; io.EOF at the stream's end
	done  func() // gives p's memory back; may be nil
}

// decoder makes chunks, one after the other, each but the last a multiple of 4 KiB. After an error it is not asked again.
type decoder interface {
	next() chunk
	close()
}

// ahead runs a decoder in its own goroutine, a few chunks ahead of its reader.
type ahead struct {
	kind  Kind
	limit int64

	chunks chan chunk
	stop   chan struct{}
	once   sync.Once

	cur   chunk  // what is being read
	rest  []byte // of cur.p, not yet read
	out   int64  // decoded bytes handed out so far, from the stream's beginning
	state *State
	err   error
}

// depth is how many chunks may wait: one being written, one ready, one being made.
const depth = 2

func newAhead(kind Kind, d decoder, o Options) *ahead {
	a := &ahead{kind: kind, limit: o.Limit, chunks: make(chan chunk, depth), stop: make(chan struct{}), state: o.Resume}
	if o.Resume != nil {
		a.out = o.Resume.Out
	}
	go a.run(d)
	return a
}

func (a *ahead) run(d decoder) {
	defer d.close()
	for {
		c := d.next()
		select {
		case a.chunks <- c:
		case <-a.stop:
			return
		}
		if c.err != nil {
			return
		}
	}
}

// Next implements Reader.
func (a *ahead) Next() ([]byte, error) {
	if len(a.rest) > 0 {
		p := a.rest
		a.rest = nil
		return p, nil
	}
	for {
		if a.cur.done != nil {
			a.cur.done()
		}
		if a.cur.state != nil {
			a.state = a.cur.state
		}
		if a.err == nil {
			a.err = a.cur.err
		}
		a.cur = chunk{}
		if a.err != nil {
			return nil, a.err
		}
		select {
		case a.cur = <-a.chunks:
		case <-a.stop:
			a.err = errClosed
			return nil, a.err
		}
		if len(a.cur.p) == 0 {
			continue
		}
		a.out += int64(len(a.cur.p))
		if a.limit > 0 && a.out > a.limit {
			a.err = tooLarge(a.kind, a.limit)
			return nil, a.err
		}
		return a.cur.p, nil
	}
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		q, err := a.Next()
		if err != nil {
			return 0, err
		}
		a.rest = q
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// State implements Reader. The state of a chunk counts once the chunk was read to its end, which is when the next one is
// asked for: only then has the caller had time to write it.
func (a *ahead) State() *State {
	if len(a.rest) == 0 && a.cur.state != nil {
		return a.cur.state
	}
	return a.state
}

// Close implements Reader.
func (a *ahead) Close() error {
	a.once.Do(func() { close(a.stop) })
	return nil
}

var errClosed = errors.New("read a decoder that was closed")

func tooLarge(kind Kind, limit int64) error {
	return task.Errorf(task.DoesNotFit, "the %s stream decodes to more than the %d bytes there is room for; ask for a larger volume", kind, limit)
}
