package fault

import (
	"errors"
	"io"
)

// Body guards the body of an answer: it yields exactly n bytes (or all there are, if n is negative), fewer are a
// Truncated error, and whatever else goes wrong is explained by Wire.
func Body(name string, rc io.ReadCloser, n int64) io.ReadCloser {
	return &body{name: name, rc: rc, want: n}
}

type body struct {
	name string
	rc   io.ReadCloser
	got  int64
	want int64
}

func (b *body) Read(p []byte) (int, error) {
	if b.want >= 0 {
		left := b.want - b.got
		if left == 0 {
			return b.drain(p)
		}
		p = p[:min(int64(len(p)), left)]
	}
	n, err := b.rc.Read(p)
	b.got += int64(n)
	switch {
	case err == nil:
		return n, nil
	case b.want >= 0 && b.got == b.want:
		return n, io.EOF
	case errors.Is(err, io.EOF) && b.want < 0:
		return n, io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && b.want >= 0:
		return n, Truncated(b.name, b.got, b.want)
	}
	return n, Wire(b.name, err)
}

// drain sees the end of a body that should be at its end, because a connection is only used again after that.
func (b *body) drain(p []byte) (int, error) {
	if len(p) > 0 {
		_, _ = b.rc.Read(p[:1]) // all wanted bytes are here, so what comes now cannot be wrong
	}
	return 0, io.EOF
}

func (b *body) Close() error { return b.rc.Close() }
