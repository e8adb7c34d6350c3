package readahead

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"testing/iotest"
)

func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

// TestCopy: the received bytes are those that were sent, for all lengths.
func TestCopy(t *testing.T) {
	for _, size := range []int{0, 1, piece - 1, piece, piece + 1, pieces * piece, 7*piece + 5} {
		want := noise(size)
		var got bytes.Buffer
		err := Copy(iotest.HalfReader(bytes.NewReader(want)), func(p []byte) error { _, err := got.Write(p); return err })
		if err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes: %d arrived, %v", size, got.Len(), err)
		}
		answer := httptest.NewRecorder()
		if n, err := io.Copy(Response{answer}, io.MultiReader(bytes.NewReader(want))); err != nil || n != int64(size) || !bytes.Equal(answer.Body.Bytes(), want) {
			t.Errorf("%d bytes: %d were sent, %v", size, n, err)
		}
	}
}

// TestFails: what was read before is written, what fails is said, and nothing is written after that.
func TestFails(t *testing.T) {
	broken := errors.New("broken")
	want := noise(4*piece + 9)
	var got bytes.Buffer
	err := Copy(io.MultiReader(bytes.NewReader(want), iotest.ErrReader(broken)), func(p []byte) error { _, err := got.Write(p); return err })
	if !errors.Is(err, broken) || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the source breaks: %d bytes, %v", got.Len(), err)
	}
	written := 0
	endless := readerFunc(func(p []byte) (int, error) { return len(p), nil })
	err = Copy(endless, func([]byte) error {
		if written++; written == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || written != 3 {
		t.Errorf("the target breaks: written %d times, %v", written, err)
	}
}

// TestSilentSource: a target that fails is not kept waiting by a source that says nothing more.
func TestSilentSource(t *testing.T) {
	broken, silent := errors.New("broken"), make(chan struct{})
	defer close(silent)
	r := io.MultiReader(bytes.NewReader(noise(piece)), readerFunc(func([]byte) (int, error) { <-silent; return 0, io.EOF }))
	if err := Copy(r, func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
