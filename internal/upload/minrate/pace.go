// Package minrate keeps slow clients from holding a server's places for ever: a body must bring some bytes in every while.
// Time in which the server itself is not reading, because what it writes to is slow, does not count against the client.
package minrate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Limit is the least a client must send: Bytes in every Window of waiting for it.
type Limit struct {
	Window time.Duration
	Bytes  int64
}

// Default disconnects clients that are slower than a telephone line or silently gone.
var Default = Limit{Window: time.Minute, Bytes: 64 << 10}

// ErrSlow is returned by a read if the client was too slow.
var ErrSlow = errors.New("the client is too slow")

// Body returns the request's body under a limit. The connection is of no use after ErrSlow.
func Body(w http.ResponseWriter, r *http.Request, limit Limit) io.ReadCloser {
	return &body{ReadCloser: r.Body, limit: limit, deadline: http.NewResponseController(w).SetReadDeadline}
}

type body struct {
	io.ReadCloser
	limit    Limit
	deadline func(time.Time) error
	waited   time.Duration // in this window
	brought  int64
}

func (b *body) Read(p []byte) (int, error) {
	if int64(len(p)) > b.limit.Bytes {
		p = p[:b.limit.Bytes] // net/http may wait until p is full, which is as long as is enough
	}
	start := time.Now()
	if err := b.deadline(start.Add(b.limit.Window - b.waited)); err != nil {
		return 0, fmt.Errorf("limit how long a client may take: %w", err)
	}
	n, err := b.ReadCloser.Read(p)
	b.waited += time.Since(start)
	b.brought += int64(n)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fmt.Errorf("%w: %d bytes in %s", ErrSlow, b.brought, b.limit.Window)
	case errors.Is(err, io.EOF):
		// The server goes on looking whether the client is still there; that must not end with the last deadline.
		if failed := b.deadline(time.Time{}); failed != nil {
			return n, fmt.Errorf("end the limit of how long a client may take: %w", failed)
		}
	case b.brought >= b.limit.Bytes:
		b.waited, b.brought = 0, 0
	}
	return n, err
}
