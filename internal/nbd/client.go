package nbd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Numbers that only a client of a real server needs: structured replies and metadata contexts.
const (
	optStructuredReply, optSetMetaContext = 8, 10

	repMetaContext = 4

	magicChunk = 0x668e33ef
	chunkDone  = 1 // flag: the last chunk of a reply

	chunkNone, chunkData, chunkHole, chunkStatus = 0, 1, 2, 5
	chunkError                                   = 1 << 15

	cmdBlockStatus = 7

	// Reads are split into requests of this size, so that one connection has several under way.
	clientRead = 2 << 20
	// QEMU asks no more than this of a block status request either: the length is a 32-bit number.
	clientStatus = 1 << 30
	// A server describes at most this many extents in one reply; it continues with the next request.
	mostExtents = 128 << 10
)

// Extent is a range of a disk that has the same flags in a metadata context.
type Extent struct {
	Offset, Length int64
	Flags          uint32
}

// Flags of extents in the contexts "base:allocation" and "qemu:dirty-bitmap:NAME".
const (
	Hole  = 1 // base:allocation: nothing is allocated
	Zero  = 2 // base:allocation: reads as zeroes
	Dirty = 1 // qemu:dirty-bitmap: changed since the bitmap was created
)

// Client reads an export of an NBD server. Its methods may be called concurrently. It does not trust the server: what it receives is bounded
// by what it asked for.
type Client struct {
	conn     net.Conn
	size     int64
	contexts map[uint32]string

	writing sync.Mutex
	mu      sync.Mutex
	calls   map[uint64]*call
	last    uint64
	failed  error // no reply can be read any more
}

// call is a request whose reply is being waited for.
type call struct {
	off     int64
	data    []byte // of a read: where it goes
	got     int64
	context string // of a block status request
	length  int64
	extents []Extent
	err     error
	done    chan struct{}
}

// Open negotiates with the server on conn and selects the export and the metadata contexts. It returns an error if the server lacks one
// of them. Close the client to close conn.
func Open(conn net.Conn, export string, contexts ...string) (*Client, error) {
	c := &Client{conn: conn, contexts: map[uint32]string{}, calls: map[uint64]*call{}}
	if err := c.greet(); err != nil {
		return nil, err
	}
	if err := c.ask(optStructuredReply, nil, func(uint32, []byte) {}); err != nil {
		return nil, fmt.Errorf("ask for structured replies: %w", err)
	}
	if len(contexts) > 0 {
		if err := c.selectContexts(export, contexts); err != nil {
			return nil, err
		}
	}
	name := append(be.AppendUint32(nil, uint32(len(export))), export...)
	found := false
	err := c.ask(optGo, append(name, 0, 0), func(kind uint32, data []byte) {
		if kind == repInfo && len(data) >= 10 && be.Uint16(data) == infoExport {
			c.size, found = int64(be.Uint64(data[2:])), true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("open export %q: %w", export, err)
	}
	if !found || c.size < 0 {
		return nil, fmt.Errorf("export %q has no size: %w", export, ErrProtocol)
	}
	go c.receive()
	return c, nil
}

func (c *Client) greet() error {
	var hello [18]byte
	if _, err := io.ReadFull(c.conn, hello[:]); err != nil {
		return fmt.Errorf("read the server's greeting: %w", err)
	}
	if string(hello[:8]) != "NBDMAGIC" || be.Uint64(hello[8:]) != magicOption || be.Uint16(hello[16:])&handshakeFixed == 0 {
		return ErrProtocol
	}
	_, err := c.conn.Write(be.AppendUint32(nil, handshakeFixed|handshakeNoZeroes))
	return err
}

// ask sends an option and reads its replies until the acknowledgement; each is called for the replies before that.
func (c *Client) ask(option uint32, data []byte, each func(kind uint32, data []byte)) error {
	b := be.AppendUint32(be.AppendUint64(nil, magicOption), option)
	if _, err := c.conn.Write(append(be.AppendUint32(b, uint32(len(data))), data...)); err != nil {
		return err
	}
	for range mostAnswers {
		var head [20]byte
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			return err
		}
		kind, n := be.Uint32(head[12:]), be.Uint32(head[16:])
		if be.Uint64(head[:]) != magicReply || be.Uint32(head[8:]) != option || n > longestAnswer {
			return ErrProtocol
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(c.conn, text); err != nil {
			return err
		}
		switch {
		case kind == repAck:
			return nil
		case kind == repUnknown:
			return ErrNoExport
		case kind == repPolicy || kind == repTLSRequired:
			return ErrDenied
		case kind&(1<<31) != 0:
			return fmt.Errorf("the server refuses option %d with %#x: %.200s", option, kind, text)
		}
		each(kind, text)
	}
	return ErrProtocol
}

func (c *Client) selectContexts(export string, contexts []string) error {
	b := append(be.AppendUint32(nil, uint32(len(export))), export...)
	b = be.AppendUint32(b, uint32(len(contexts)))
	for _, name := range contexts {
		b = append(be.AppendUint32(b, uint32(len(name))), name...)
	}
	err := c.ask(optSetMetaContext, b, func(kind uint32, data []byte) {
		if kind == repMetaContext && len(data) > 4 {
			c.contexts[be.Uint32(data)] = string(data[4:])
		}
	})
	if err != nil {
		return fmt.Errorf("select metadata contexts: %w", err)
	}
	for _, name := range contexts {
		if !c.selected(name) {
			return fmt.Errorf("export %q has no metadata context %q", export, name)
		}
	}
	return nil
}

// selected reports whether the metadata context was selected at Open.
func (c *Client) selected(context string) bool {
	for _, name := range c.contexts {
		if name == context {
			return true
		}
	}
	return false
}

// Size returns the size of the export in bytes.
func (c *Client) Size() int64 { return c.size }

// Close ends the connection. Requests under way return an error.
func (c *Client) Close() error {
	c.writing.Lock()
	b := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, magicAsk), 0), cmdDisconnect)
	_, _ = c.conn.Write(append(b, make([]byte, 20)...)) // the server may be gone already
	c.writing.Unlock()
	return c.conn.Close()
}

// ReadAt implements io.ReaderAt.
func (c *Client) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= c.size {
		return 0, io.EOF
	}
	want := p
	if int64(len(p)) > c.size-off {
		want = p[:c.size-off]
	}
	var calls []*call
	for at := 0; at < len(want); at += clientRead {
		part := want[at:min(at+clientRead, len(want))]
		calls = append(calls, &call{off: off + int64(at), data: part, length: int64(len(part))})
	}
	if err := c.carryOut(cmdRead, calls...); err != nil {
		return 0, fmt.Errorf("read %d bytes at %d: %w", len(want), off, err)
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// Extents calls each with the extents of the whole export; see ExtentsIn.
func (c *Client) Extents(context string, each func(Extent) error) error {
	return c.ExtentsIn(context, 0, c.size, each)
}

// ExtentsIn calls each with the extents in [from, to) in a metadata context that was selected at Open, in order and without gaps. Neighbours
// with the same flags are one extent.
func (c *Client) ExtentsIn(context string, from, to int64, each func(Extent) error) error {
	if !c.selected(context) {
		return fmt.Errorf("metadata context %q was not selected", context)
	}
	var last Extent
	for at := from; at < min(to, c.size); {
		found, err := c.statusAt(context, at, min(to, c.size))
		if err != nil {
			return fmt.Errorf("list extents at %d: %w", at, err)
		}
		for _, e := range found {
			at += e.Length
			if last.Flags == e.Flags && last.Length > 0 {
				last.Length += e.Length
				continue
			}
			if last.Length > 0 {
				if err := each(last); err != nil {
					return err
				}
			}
			last = e
		}
	}
	if last.Length > 0 {
		return each(last)
	}
	return nil
}

// statusAt asks once for extents from at on. It returns at least one, and cuts extents at to, because a server may describe more
// than it was asked for.
func (c *Client) statusAt(context string, at, to int64) ([]Extent, error) {
	k := &call{off: at, length: min(clientStatus, to-at), context: context}
	if err := c.carryOut(cmdBlockStatus, k); err != nil {
		return nil, err
	}
	for i := range k.extents {
		e := &k.extents[i]
		if e.Length = min(e.Length, to-e.Offset); e.Length <= 0 {
			return k.extents[:i], nil
		}
	}
	return k.extents, nil
}

// carryOut sends requests and waits for their replies.
func (c *Client) carryOut(command uint16, calls ...*call) error {
	var errs []error
	for _, k := range calls {
		k.done = make(chan struct{})
		if err := c.send(command, k); err != nil {
			errs = append(errs, err)
			break
		}
	}
	for _, k := range calls {
		if len(errs) > 0 {
			break
		}
		<-k.done
		if k.err != nil {
			errs = append(errs, k.err)
		}
	}
	if len(errs) > 0 {
		// Replies to the others may still be on their way to memory of the caller's: the connection is of no use any more.
		_ = c.conn.Close()
		for _, k := range calls {
			c.forget(k)
		}
	}
	return errors.Join(errs...)
}

func (c *Client) send(command uint16, k *call) error {
	c.mu.Lock()
	if c.failed != nil {
		defer c.mu.Unlock()
		return c.failed
	}
	c.last++
	cookie := c.last
	c.calls[cookie] = k
	c.mu.Unlock()
	b := be.AppendUint16(be.AppendUint16(be.AppendUint32(nil, magicAsk), 0), command)
	b = be.AppendUint64(be.AppendUint64(b, cookie), uint64(k.off))
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.conn.Write(be.AppendUint32(b, uint32(k.length)))
	return err
}

// forget waits until the call's memory is no longer written to.
func (c *Client) forget(k *call) {
	c.mu.Lock()
	waiting := false
	for _, other := range c.calls {
		waiting = waiting || other == k
	}
	c.mu.Unlock()
	if waiting {
		<-k.done
	}
}
