package rfb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// screen plays a server: it says these bytes, whatever it hears, and keeps what it heard.
type screen struct {
	io.Reader
	heard bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) { return s.heard.Write(p) }

func numbers(values ...int) []byte {
	var out []byte
	for _, v := range values {
		out = binary.BigEndian.AppendUint16(out, uint16(v))
	}
	return out
}

// hello is a server's side up to its screen of that size.
func hello(width, height int) []byte {
	return bytes.Join([][]byte{[]byte("RFB 003.008\n"), {2, 2, 1}, {0, 0, 0, 0}, numbers(width, height), make([]byte, 16), {0, 0, 0, 2}, []byte("vm")}, nil)
}

// rectangle is one of a screen, in one colour.
func rectangle(x, y, w, h int, colour ...byte) []byte {
	return append(append(numbers(x, y, w, h), 0, 0, 0, 0), bytes.Repeat(append(colour, 0), w*h)...)
}

// TestCapture: the picture is what the server sent, in as many pieces as it liked, with whatever else came between.
func TestCapture(t *testing.T) {
	const blue, red = 0, 2
	said := bytes.Join([][]byte{
		hello(4, 2), {bell}, {cutText, 0, 0, 0, 0, 0, 0, 2}, []byte("hi"), {setColourMap, 0}, numbers(0, 1), make([]byte, 6),
		{framebufferUpdate, 0}, numbers(1), rectangle(0, 0, 4, 1, 255, 0, 0), // blue comes first
		{framebufferUpdate, 0}, numbers(2), rectangle(0, 1, 1, 1, 0, 0, 255), rectangle(1, 1, 3, 1, 0, 0, 255),
	}, nil)
	s := &screen{Reader: bytes.NewReader(said)}
	picture, err := Capture(s, false)
	if err != nil {
		t.Fatal(err)
	}
	if picture.Rect.Dx() != 4 || picture.Rect.Dy() != 2 {
		t.Fatalf("the picture is %v", picture.Rect)
	}
	for x := range 4 {
		if r, _, b, a := picture.At(x, 0).RGBA(); r != 0 || b != 0xffff || a != 0xffff {
			t.Errorf("pixel %d of line %d is %v", x, blue, picture.At(x, 0))
		}
		if r, _, b, _ := picture.At(x, 1).RGBA(); r != 0xffff || b != 0 {
			t.Errorf("pixel %d of line %d is %v", x, red, picture.At(x, 1))
		}
	}
	if got := s.heard.Bytes(); string(got[:12]) != version || got[12] != 1 || got[13] != 1 {
		t.Errorf("the server heard %q", got)
	}
}

// TestHostile: a server that wants something else, says too much or says nonsense is refused with what is wrong.
func TestHostile(t *testing.T) {
	update := func(parts ...[]byte) []byte {
		return bytes.Join(append([][]byte{hello(2, 2), {framebufferUpdate, 0}, numbers(1)}, parts...), nil)
	}
	for says, said := range map[string][]byte{
		"another protocol":     []byte("SSH-2.0-ABCDEF\r\n"),
		"wants a password":     []byte("RFB 003.008\n\x01\x02\x00\x00\x00\x00"),
		"it refuses: \"no\"":   []byte("RFB 003.008\n\x00\x00\x00\x00\x02no"),
		"a screen of 65535 by": hello(65535, 65535),
		"a screen of 0 by":     hello(0, 7),
		"text of 4294967295":   append(hello(2, 2), cutText, 0, 0, 0, 255, 255, 255, 255),
		"a message of kind 77": append(hello(2, 2), 77),
		"encoding -1":          update(numbers(0, 0, 1, 1), []byte{255, 255, 255, 255}),
		"beside the screen":    update(rectangle(1, 1, 2, 1, 0, 0, 0)),
		"unexpected EOF":       update(numbers(0, 0, 2, 2), []byte{0, 0, 0, 0, 1}),
	} {
		if _, err := Capture(&screen{Reader: bytes.NewReader(said)}, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestEndless: a server that paints the same line for ever is not waited for.
func TestEndless(t *testing.T) {
	line := append([]byte{framebufferUpdate, 0, 0, 1}, rectangle(0, 0, 4096, 1, 0, 0, 0)...)
	if _, err := Capture(&screen{Reader: io.MultiReader(bytes.NewReader(hello(4096, 2304)), &endless{line: line})}, false); !errors.Is(err, errEnough) {
		t.Errorf("it ends with %v", err)
	}
}

// endless says a line again and again.
type endless struct {
	line []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.line[e.at:])
	e.at = (e.at + n) % len(e.line)
	return n, nil
}

// TestEnds: whoever closes the connection ends a capture that waits.
func TestEnds(t *testing.T) {
	here, there := net.Pipe()
	time.AfterFunc(10*time.Millisecond, func() { _ = there.Close() })
	if _, err := Capture(here, false); err == nil {
		t.Error("a closed connection has a picture")
	}
}

// FuzzCapture: whatever a server says, there is a picture or an error.
func FuzzCapture(f *testing.F) {
	f.Add(append(hello(2, 1), append([]byte{framebufferUpdate, 0, 0, 1}, rectangle(0, 0, 2, 1, 1, 2, 3)...)...))
	f.Add(hello(65535, 1))
	f.Fuzz(func(t *testing.T, said []byte) {
		picture, err := Capture(&screen{Reader: bytes.NewReader(said)}, false)
		if err == nil && picture.Rect.Empty() {
			t.Error("an empty picture")
		}
	})
}
