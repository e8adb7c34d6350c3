// Package tlsbatch is TLS that hands several records at a time to the system. crypto/tls writes each 16 KiB by itself, and for
// gigabytes over a fast network those calls, and waking the receiver for each, cost more than the encryption.
//
// It does not know the data, and does not delay it: the data of a Write is sent when Write returns.
package tlsbatch

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// most is the size of a batch: four full records, the most that one segment of a local network takes.
const most = 64 << 10

// Client makes a TLS connection of raw, which it closes if that does not succeed. The config names the server.
func Client(ctx context.Context, raw net.Conn, config *tls.Config) (net.Conn, error) {
	config = config.Clone()
	config.DynamicRecordSizingDisabled = true // small records are for pages that are shown before they are complete
	out := &collector{Conn: raw}
	c := &conn{Conn: tls.Client(out, config), out: out}
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // nothing was sent
		return nil, err
	}
	return c, nil
}

type conn struct {
	*tls.Conn
	out *collector
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.out.hold()
	n, err := c.Conn.Write(p)
	if failed := c.out.release(); err == nil && failed != nil {
		return 0, failed
	}
	return n, err
}

// collector is the way from crypto/tls to the system. What is written while it is held leaves in larger pieces, in order;
// crypto/tls itself may write meanwhile because of what it has read.
type collector struct {
	net.Conn

	mu    sync.Mutex // guards what follows
	holds int
	held  []byte
	err   error // of an earlier piece: the connection is of no use
}

// Write implements net.Conn.
func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return 0, c.err
	case c.holds == 0 && len(c.held) == 0:
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	if len(c.held) < most {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *collector) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds++
}

func (c *collector) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds--; c.holds > 0 {
		return c.err
	}
	return c.flush()
}

func (c *collector) flush() error {
	if c.err == nil && len(c.held) > 0 {
		_, c.err = c.Conn.Write(c.held)
		c.held = c.held[:0]
	}
	return c.err
}
