// Package readahead copies with the next bytes being read while those before are written, for copies whose two ends take about as long:
// a disk and a connection with TLS, say.
//
// It does not know what it copies.
package readahead

import (
	"errors"
	"io"
	"net/http"
)

const (
	pieces = 3 // one is read, one is written, and one is between them
	piece  = 512 << 10
)

// Copy calls write with the contents of r, in order, until r ends or either fails. When write has failed, r may still be in a
// read: a full target is reported without waiting for a silent source.
func Copy(r io.Reader, write func([]byte) error) error {
	free, full := make(chan []byte, pieces), make(chan []byte, pieces)
	for range pieces {
		free <- make([]byte, piece)
	}
	var failed error
	go func() {
		defer close(full)
		failed = read(r, free, full)
	}()
	for p := range full {
		if err := write(p); err != nil {
			close(free) // the reader ends with the piece that it has in hand, for which there is room
			return err
		}
		free <- p[:piece]
	}
	return failed
}

func read(r io.Reader, free <-chan []byte, full chan<- []byte) error {
	for p := range free {
		n, err := io.ReadFull(r, p)
		if n > 0 {
			full <- p[:n]
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// Response is an answer that http.ServeContent sends in this way.
type Response struct{ http.ResponseWriter }

// ReadFrom sends the content of r. io.Copy calls it.
func (w Response) ReadFrom(r io.Reader) (sent int64, err error) {
	err = Copy(r, func(p []byte) error {
		n, err := w.Write(p)
		sent += int64(n)
		return err
	})
	return sent, err
}
