// Package nbdtest is the other half of the NBD protocol, for tests: one request at a time, every byte as the specification
// has it.
package nbdtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Client is a connection to an export.
type Client struct {
	mu   sync.Mutex
	conn net.Conn
	size int64
	// Flags are the export's.
	Flags uint16
}

var be = binary.BigEndian

// Commands.
const (
	Read   = 0
	Write  = 1
	Leave  = 2
	Flush  = 3
	Zeroes = 6
)

// Code is an error that the server answered with.
type Code uint32

func (c Code) Error() string { return fmt.Sprintf("the server answers with error %d", uint32(c)) }

// Dial connects to the export on a socket.
func Dial(path string) (*Client, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn}
	if err := c.negotiate(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

func (c *Client) negotiate() error {
	hello := make([]byte, 18)
	if _, err := io.ReadFull(c.conn, hello); err != nil {
		return err
	}
	ask := append([]byte{0, 0, 0, 3}, "IHAVEOPT"...)
	ask = append(ask, 0, 0, 0, 1, 0, 0, 0, 0) // the export without a name
	if _, err := c.conn.Write(ask); err != nil {
		return err
	}
	export := make([]byte, 10)
	if _, err := io.ReadFull(c.conn, export); err != nil {
		return err
	}
	c.size, c.Flags = int64(be.Uint64(export)), be.Uint16(export[8:])
	return nil
}

// Size returns the export's.
func (c *Client) Size() int64 { return c.size }

// Ask sends a request and waits for its answer. data holds the bytes to write, or is filled with the bytes that were read.
func (c *Client) Ask(command, flags uint16, off int64, n int, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := be.AppendUint32(nil, 0x25609513)
	b = be.AppendUint16(be.AppendUint16(b, flags), command)
	b = be.AppendUint64(be.AppendUint64(b, 42), uint64(off))
	b = be.AppendUint32(b, uint32(n))
	if command == Write {
		b = append(b, data...)
	}
	if _, err := c.conn.Write(b); err != nil || command == Leave {
		return err
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		return err
	}
	if be.Uint32(head) != 0x67446698 || be.Uint64(head[8:]) != 42 {
		return fmt.Errorf("answer %x", head)
	}
	if code := be.Uint32(head[4:]); code != 0 {
		return Code(code)
	}
	if command == Read {
		_, err := io.ReadFull(c.conn, data)
		return err
	}
	return nil
}

// ReadAt is io.ReaderAt.
func (c *Client) ReadAt(p []byte, off int64) (int, error) {
	return len(p), c.Ask(Read, 0, off, len(p), p)
}

// WriteAt is io.WriterAt.
func (c *Client) WriteAt(p []byte, off int64) (int, error) {
	return len(p), c.Ask(Write, 0, off, len(p), p)
}

// Close leaves without a word.
func (c *Client) Close() error { return c.conn.Close() }

// Leave says goodbye and leaves.
func (c *Client) Leave() error { return errors.Join(c.Ask(Leave, 0, 0, 0, nil), c.conn.Close()) }
