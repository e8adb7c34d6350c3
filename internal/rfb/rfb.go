// Package rfb takes a picture of a screen that is shown by the protocol of VNC (RFC 6143). It knows as much of the protocol as a server
// needs to send the whole screen once, in plain pixels. The server is a guest's and hostile: what it says is bounded before anything
// is allocated, and nothing but pixels comes out.
package rfb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"time"
)

const (
	version = "RFB 003.008\n"
	// MostPixels is more than a screen of 4096 by 2304 has.
	MostPixels = 10 << 20
	// mostText is how long a name or a reason may be that nobody reads.
	mostText = 1 << 16
	// wakes is how long a screen may take to come back after the pointer was moved.
	wakes = time.Second
)

// What a client sends.
const (
	setPixelFormat = 0
	setEncodings   = 2
	requestUpdate  = 3
	pointerEvent   = 5
)

// What a server sends.
const (
	framebufferUpdate = 0
	setColourMap      = 1
	bell              = 2
	cutText           = 3
)

var errEnough = errors.New("the screen sends more than anybody asked for")

// client is one end of a connection. The first error ends everything that comes after it.
type client struct {
	conn io.ReadWriter
	err  error
}

func (c *client) read(n int) []byte {
	buf := make([]byte, n)
	if c.err == nil {
		_, c.err = io.ReadFull(c.conn, buf)
	}
	return buf
}

func (c *client) number16() int { return int(binary.BigEndian.Uint16(c.read(2))) }

func (c *client) number32() uint32 { return binary.BigEndian.Uint32(c.read(4)) }

func (c *client) write(message ...byte) {
	if c.err == nil {
		_, c.err = c.conn.Write(message)
	}
}

func (c *client) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// text skips one, or returns it if it is short.
func (c *client) text() string {
	n := c.number32()
	if n > mostText {
		c.fail("the screen sends a text of %d bytes", n)
		return ""
	}
	return string(c.read(int(n)))
}

// Capture connects to a screen, beside whoever looks at it already, and returns what is on it. With move the pointer is moved
// before, which wakes a screen that sleeps. Whoever opened the connection closes it, also to end this early.
func Capture(conn io.ReadWriter, move bool) (*image.NRGBA, error) {
	c := &client{conn: conn}
	c.greet()
	width, height := c.begin()
	if c.err != nil {
		return nil, fmt.Errorf("connect to the screen: %w", c.err)
	}
	if move {
		c.point(0, 0)
		c.point(width/2, height/2)
		<-time.After(wakes)
	}
	picture, err := c.capture(width, height)
	if err != nil {
		return nil, fmt.Errorf("read the screen: %w", err)
	}
	return picture, nil
}

// greet agrees on the version and on nobody having to say who they are.
func (c *client) greet() {
	if said := c.read(len(version)); c.err == nil && string(said[:4]) != version[:4] {
		c.fail("it speaks another protocol: %q", said)
	}
	c.write([]byte(version)...)
	n := int(c.read(1)[0])
	if n == 0 {
		c.fail("it refuses: %.200q", c.text())
	}
	none := false
	for _, kind := range c.read(n) {
		none = none || kind == 1
	}
	if !none {
		c.fail("it wants a password")
	}
	c.write(1)
	if c.number32() != 0 {
		c.fail("it refuses: %.200q", c.text())
	}
	c.write(1) // others may stay
}

// begin reads how large the screen is, and says how its pixels are wanted: four bytes, blue first, as they are.
func (c *client) begin() (width, height int) {
	width, height = c.number16(), c.number16()
	c.read(16) // its own format of pixels
	c.text()   // its name
	if c.err == nil && (width == 0 || height == 0 || width*height > MostPixels) {
		c.fail("a screen of %d by %d pixels", width, height)
	}
	c.write(setPixelFormat, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0)
	c.write(setEncodings, 0, 0, 1, 0, 0, 0, 0)
	return width, height
}

func (c *client) point(x, y int) {
	c.write(pointerEvent, 0, byte(x>>8), byte(x), byte(y>>8), byte(y))
}

func (c *client) request(width, height int, changes byte) {
	c.write(requestUpdate, changes, 0, 0, 0, 0, byte(width>>8), byte(width), byte(height>>8), byte(height))
}

// capture asks for the screen until all of it has come.
func (c *client) capture(width, height int) (*image.NRGBA, error) {
	s := &sheet{picture: image.NewNRGBA(image.Rect(0, 0, width, height)), painted: make([]bool, width*height)}
	c.request(width, height, 0)
	for c.err == nil && s.count < width*height {
		switch kind := c.read(1)[0]; {
		case c.err != nil:
		case kind == framebufferUpdate:
			c.update(s)
			c.request(width, height, 1)
		case kind == setColourMap:
			c.read(3)
			c.read(6 * c.number16())
		case kind == bell:
		case kind == cutText:
			c.read(3)
			c.text()
		default:
			c.fail("it sends a message of kind %d", kind)
		}
	}
	return s.picture, c.err
}

// update reads rectangles of the screen.
func (c *client) update(s *sheet) {
	c.read(1)
	for range c.number16() {
		x, y, w, h := c.number16(), c.number16(), c.number16(), c.number16()
		encoding := c.number32()
		switch {
		case c.err != nil:
			return
		case encoding != 0:
			c.fail("it sends pixels in encoding %d", int32(encoding))
			return
		case !image.Rect(x, y, x+w, y+h).In(s.picture.Rect):
			c.fail("it sends pixels beside the screen")
			return
		}
		for line := range h {
			pixels := c.read(4 * w)
			if c.err != nil {
				return
			}
			s.paint(x, y+line, pixels)
		}
		// A screen that changes is painted over a few times; one that never ends is not waited for.
		if s.sent += w * h; s.sent > 8*MostPixels {
			c.err = errEnough
			return
		}
	}
}

// sheet is a picture while it is painted.
type sheet struct {
	picture *image.NRGBA
	painted []bool
	count   int // pixels that are painted
	sent    int // pixels that came, also those that came again
}

func (s *sheet) paint(x, y int, pixels []byte) {
	at, mark := s.picture.PixOffset(x, y), y*s.picture.Rect.Dx()+x
	for i := 0; i < len(pixels); i += 4 {
		out := s.picture.Pix[at+i : at+i+4 : at+i+4]
		out[0], out[1], out[2], out[3] = pixels[i+2], pixels[i+1], pixels[i], 255
		if !s.painted[mark+i/4] {
			s.painted[mark+i/4] = true
			s.count++
		}
	}
}
