package stream

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
)

// Conn is a stream as other connections are: Read gives the bytes of messages, Write makes one of them.
type Conn struct {
	ws *websocket.Conn
	r  io.Reader // the rest of a message
	mu sync.Mutex
}

// Of returns a websocket that is open already.
func Of(ws *websocket.Conn) *Conn { return &Conn{ws: ws} }

// Open opens the stream at a path of the API server.
func Open(ctx context.Context, config *rest.Config, path string) (*Conn, error) {
	ws, err := Dial(ctx, config, path)
	if err != nil {
		return nil, err
	}
	return &Conn{ws: ws}, nil
}

// Read reads what the other side sends; a stream that the other side has closed is at its end.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		if c.r == nil {
			var err error
			if _, c.r, err = c.ws.NextReader(); err != nil {
				var closed *websocket.CloseError
				if errors.As(err, &closed) && (closed.Code == websocket.CloseNormalClosure || closed.Code == websocket.CloseAbnormalClosure) {
					return 0, io.EOF
				}
				return 0, err
			}
		}
		n, err := c.r.Read(p)
		if errors.Is(err, io.EOF) {
			c.r, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// ReadMessage reads one message: a stream of datagrams has one in each.
func (c *Conn) ReadMessage() ([]byte, error) {
	_, text, err := c.ws.ReadMessage()
	return text, err
}

// Write sends one message.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ws.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the stream and tells the other side.
func (c *Conn) Close() error {
	_ = c.ws.WriteControl(websocket.CloseMessage,
		websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second)) // a courtesy
	return c.ws.Close()
}

// Join moves bytes between two connections until either ends or ctx does, and closes both.
func Join(ctx context.Context, c *Conn, here io.ReadWriteCloser) error {
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(here, c); ended <- err }()
	go func() { _, err := io.Copy(struct{ io.Writer }{c}, here); ended <- err }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_, _ = c.Close(), here.Close()
	return err
}
