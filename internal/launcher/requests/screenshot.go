package requests

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

const (
	// mostPixels is more than a screen of 4096 by 2304 has.
	mostPixels = 10 << 20
	// mostHeader is how long the text before the pixels may be: two letters and three numbers.
	mostHeader = 64
	// wakes is how long a screen may take to wake after the pointer was moved.
	wakes = time.Second
	// shownWithin is how long a client may take to receive a picture.
	shownWithin = 20 * time.Second
)

// screen takes pictures of the guest's screen, one at a time.
type screen struct {
	mu   sync.Mutex
	qemu *qmp.Monitor
	dir  string // where QEMU may write a file
}

// screenshot sends the user a PNG of the screen.
func (r *Server) screenshot(user *peer, how string) error {
	if how != launcherapi.ScreenAsItIs && how != launcherapi.ScreenAwake {
		return fmt.Errorf("%q is no way to take a picture", how)
	}
	if _, err := os.Stat(launcherapi.ScreenSocket); err != nil {
		return errNoScreen
	}
	r.screen.mu.Lock()
	defer r.screen.mu.Unlock()
	if how == launcherapi.ScreenAwake {
		r.screen.movePointer()
	}
	picture, err := r.screen.take()
	if err != nil {
		return fmt.Errorf("take a picture of the screen: %w", err)
	}
	defer picture.close()
	user.say(launcherapi.Said{})
	_ = user.conn.SetWriteDeadline(time.Now().Add(shownWithin))
	_ = picture.encode(user.conn) // a client that gets only a part sees that the picture is not complete
	return nil
}

// movePointer wakes a screen that sleeps. It does nothing to a guest without a pointer.
func (s *screen) movePointer() {
	type event struct {
		Type string `json:"type"`
		Data any    `json:"data"`
	}
	type axis struct {
		Axis  string `json:"axis"`
		Value int    `json:"value"`
	}
	for _, kind := range []string{"abs", "rel"} {
		var refused error
		for _, value := range []int{1, 1 << 14} {
			_, err := s.qemu.Run("input-send-event", map[string][]event{"events": {
				{kind, axis{"x", value}}, {kind, axis{"y", value}}}})
			refused = errors.Join(refused, err)
		}
		if refused == nil {
			<-time.After(wakes)
			return
		}
	}
}

// take makes QEMU write the screen to a file, as a PPM: in the PNG of QEMU 7.2 red and blue are exchanged.
func (s *screen) take() (*pixmap, error) {
	path := filepath.Join(s.dir, "screenshot.ppm")
	defer func() { _ = os.Remove(path) }()
	if _, err := s.qemu.Run("screendump", map[string]string{"filename": path}); err != nil {
		return nil, err
	}
	// A hostile guest may control QEMU, so a link or a pipe in place of the file is refused.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open what QEMU wrote: %w", err)
	}
	p, err := readPixmap(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// pixmap is a PPM file as an image. One row of it is in memory.
type pixmap struct {
	file   *os.File
	start  int64 // of the pixels
	bounds image.Rectangle
	row    []byte
	y      int   // of the row
	err    error // of the first row that could not be read
}

// readPixmap reads and checks the header of a file that QEMU wrote.
func readPixmap(f *os.File) (*pixmap, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, mostHeader), mostHeader)
	var kind string
	var width, height, most int
	if _, err := fmt.Fscanf(in, "%2s\n%d %d\n%d\n", &kind, &width, &height, &most); err != nil {
		return nil, fmt.Errorf("read the header of the picture: %w", err)
	}
	if kind != "P6" || most != 255 || width <= 0 || height <= 0 || width > mostPixels || height > mostPixels || width*height > mostPixels {
		return nil, fmt.Errorf("QEMU's picture is of kind %s and has %d by %d pixels of %d shades", kind, width, height, most)
	}
	p := &pixmap{file: f, bounds: image.Rect(0, 0, width, height), row: make([]byte, 3*width), y: -1}
	p.start = int64(len(fmt.Sprintf("P6\n%d %d\n%d\n", width, height, most)))
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("measure the picture: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() != p.start+int64(3*width*height) {
		return nil, fmt.Errorf("QEMU's picture of %d by %d pixels is %s of %d bytes", width, height, info.Mode(), info.Size())
	}
	return p, nil
}

// encode writes the picture as a PNG.
func (p *pixmap) encode(out io.Writer) error {
	err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(out, p)
	return errors.Join(err, p.err)
}

func (p *pixmap) close() { _ = p.file.Close() }

// ColorModel implements image.Image.
func (p *pixmap) ColorModel() color.Model { return color.RGBAModel }

// Bounds implements image.Image.
func (p *pixmap) Bounds() image.Rectangle { return p.bounds }

// Opaque tells the encoder that no pixel is transparent, so that it does not look at each.
func (p *pixmap) Opaque() bool { return true }

// At implements image.Image. Rows are asked for one after the other.
func (p *pixmap) At(x, y int) color.Color {
	if y != p.y && p.err == nil {
		_, p.err = p.file.ReadAt(p.row, p.start+int64(y)*int64(len(p.row)))
		p.y = y
	}
	rgb := p.row[3*x : 3*x+3]
	return color.RGBA{rgb[0], rgb[1], rgb[2], 255}
}
