package nbd

import (
	"errors"
	"fmt"
	"io"
	"net"
)

// receive reads replies until the connection fails, and then fails every call that waits.
func (c *Client) receive() {
	var err error
	for err == nil {
		err = c.reply()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("the connection to the NBD server was closed: %w", io.ErrUnexpectedEOF)
	}
	_ = c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	for cookie, k := range c.calls {
		delete(c.calls, cookie)
		k.err = err
		close(k.done)
	}
}

// reply reads one simple reply or one chunk of a structured reply.
func (c *Client) reply() error {
	var head [20]byte
	if _, err := io.ReadFull(c.conn, head[:16]); err != nil {
		return err
	}
	switch be.Uint32(head[:]) {
	case magicAnswer: // a server may answer anything but a read so; QEMU does not after structured replies were agreed on
		k := c.find(be.Uint64(head[8:]))
		if k == nil || k.data != nil || be.Uint32(head[4:]) == 0 {
			return ErrProtocol
		}
		c.finish(be.Uint64(head[8:]), fmt.Errorf("the server answers with error %d", be.Uint32(head[4:])))
		return nil
	case magicChunk:
	default:
		return ErrProtocol
	}
	if _, err := io.ReadFull(c.conn, head[16:]); err != nil {
		return err
	}
	flags, kind, cookie, n := be.Uint16(head[4:]), be.Uint16(head[6:]), be.Uint64(head[8:]), be.Uint32(head[16:])
	k := c.find(cookie)
	if k == nil {
		return ErrProtocol
	}
	if err := c.chunk(k, kind, n); err != nil {
		return err
	}
	if flags&chunkDone == 0 {
		return nil
	}
	if k.err == nil && k.data != nil && k.got != k.length || k.err == nil && k.context != "" && len(k.extents) == 0 {
		return fmt.Errorf("a reply lacks data: %w", ErrProtocol)
	}
	c.finish(cookie, nil)
	return nil
}

func (c *Client) find(cookie uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[cookie]
}

func (c *Client) finish(cookie uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[cookie]
	delete(c.calls, cookie)
	if k.err == nil {
		k.err = err
	}
	close(k.done)
}

func (c *Client) chunk(k *call, kind uint16, n uint32) error {
	switch {
	case kind == chunkNone && n == 0:
		return nil
	case kind == chunkData && k.data != nil && n >= 8:
		part, err := c.part(k, int64(n)-8)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(c.conn, part)
		return err
	case kind == chunkHole && k.data != nil && n == 12:
		return c.hole(k)
	case kind == chunkStatus && k.context != "" && n >= 12 && (n-4)%8 == 0 && (n-4)/8 <= mostExtents:
		return c.status(k, int(n-4)/8)
	case kind&chunkError != 0 && n >= 6 && n <= longestAnswer:
		text := make([]byte, n)
		if _, err := io.ReadFull(c.conn, text); err != nil {
			return err
		}
		said := text[6:]
		said = said[:min(len(said), int(be.Uint16(text[4:])))]
		k.err = fmt.Errorf("the server answers with error %d: %.300s", be.Uint32(text), said)
		return nil
	}
	return fmt.Errorf("chunk %d of %d bytes: %w", kind, n, ErrProtocol)
}

// part reads the offset of a data chunk and returns the memory that its n bytes go to. Chunks may come in any order, but each byte once.
func (c *Client) part(k *call, n int64) ([]byte, error) {
	var at [8]byte
	if _, err := io.ReadFull(c.conn, at[:]); err != nil {
		return nil, err
	}
	off := int64(be.Uint64(at[:])) - k.off
	if off < 0 || n < 0 || off > k.length-n || k.got > k.length-n {
		return nil, fmt.Errorf("data outside of what was asked for: %w", ErrProtocol)
	}
	k.got += n
	return k.data[off : off+n], nil
}

func (c *Client) hole(k *call) error {
	var b [12]byte
	if _, err := io.ReadFull(c.conn, b[:]); err != nil {
		return err
	}
	off, n := int64(be.Uint64(b[:]))-k.off, int64(be.Uint32(b[8:]))
	if off < 0 || off > k.length-n || k.got > k.length-n {
		return fmt.Errorf("a hole outside of what was asked for: %w", ErrProtocol)
	}
	k.got += n
	clear(k.data[off : off+n])
	return nil
}

func (c *Client) status(k *call, n int) error {
	b := make([]byte, 4+8*n)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		return err
	}
	if c.contexts[be.Uint32(b)] != k.context {
		return nil // another context that was selected
	}
	at := k.off
	for e := b[4:]; len(e) > 0; e = e[8:] {
		x := Extent{Offset: at, Length: int64(be.Uint32(e)), Flags: be.Uint32(e[4:])}
		if x.Length == 0 {
			return fmt.Errorf("an extent of no bytes: %w", ErrProtocol)
		}
		at += x.Length
		k.extents = append(k.extents, x)
	}
	return nil
}
