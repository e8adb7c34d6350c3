// Package console connects a terminal to the serial console of a running machine. It moves bytes both ways until one
// side ends or the user leaves; it does not know what the guest says.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/term"
)

// leave is Ctrl-], the key that ends the session.
const leave = 0x1d

// Raw passes every key to the program until restore is called; if in is not a terminal it does nothing.
func Raw(in io.Reader) (restore func(), err error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("take the terminal: %w", err)
	}
	return func() { _ = term.Restore(int(f.Fd()), old) }, nil // nothing can be done about it at the end
}

// Join moves bytes between the streams and the console until the console ends, ctx ends or Ctrl-] is read. If in ends without
// Ctrl-], as a pipe does, the console's output is still read. It closes conn, and does not write to out after it has returned; a
// read of in may still be under way.
func Join(ctx context.Context, conn *websocket.Conn, in io.Reader, out io.Writer) error {
	left, ended := make(chan error, 1), make(chan error, 1)
	go func() { ended <- receive(conn, out) }()
	go func() {
		if err := send(conn, in); !errors.Is(err, io.EOF) {
			left <- err
		}
	}()
	var err error
	select {
	case err := <-ended:
		_ = conn.Close() // the other side has ended
		return err
	case err = <-left:
		_ = conn.WriteControl(websocket.CloseMessage,
			websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second)) // a courtesy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = conn.Close() // which ends receive
	<-ended
	return err
}

// receive copies what the guest says.
func receive(conn *websocket.Conn, out io.Writer) error {
	for {
		_, r, err := conn.NextReader()
		if err == nil {
			_, err = io.Copy(out, r)
		}
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed) && (closed.Code == websocket.CloseNormalClosure || closed.Code == websocket.CloseAbnormalClosure):
			return nil
		case err != nil:
			return fmt.Errorf("the console ended: %w", err)
		}
	}
}

// send copies what the user types. It returns nil when the user leaves and io.EOF when there is nothing more to type.
func send(conn *websocket.Conn, in io.Reader) error {
	buffer := make([]byte, 1024)
	for {
		n, err := in.Read(buffer)
		typed := buffer[:n]
		at := bytes.IndexByte(typed, leave)
		if at >= 0 {
			typed = typed[:at]
		}
		if len(typed) > 0 {
			if err := conn.WriteMessage(websocket.BinaryMessage, typed); err != nil {
				return fmt.Errorf("the console does not take keys: %w", err)
			}
		}
		if at >= 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
