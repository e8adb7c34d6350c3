// Package ahead copies with the next bytes being read while those before are written, for copies whose two ends take about as long:
// a disk and a connection with TLS, say.
//
// It does not know what it copies.
package ahead

import (
	"errors"
	"io"
	"net/http"
)

const (
	pieces = 3 // one is read, one is written, and one is between them
	piece  = 512 << 10
)

// Copy calls write with what r has, in order, until r ends or one of the two fails. r is not read any more when it returns.
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
	var err error
	for p := range full {
		if err != nil {
			continue
		}
		if err = write(p); err == nil {
			free <- p[:piece]
		} else {
			close(free) // the reader ends with the piece that it has in hand
		}
	}
	return errors.Join(err, failed)
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

// ReadFrom sends what r has. It is what io.Copy calls.
func (w Response) ReadFrom(r io.Reader) (sent int64, err error) {
	err = Copy(r, func(p []byte) error {
		n, err := w.Write(p)
		sent += int64(n)
		return err
	})
	return sent, err
}
