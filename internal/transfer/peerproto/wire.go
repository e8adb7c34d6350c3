// Package peerproto is the protocol of two workers while one clones the other's volume: the paths, the headers and the framing of
// bytes. Both ends import it (the server is volumeserver.Serve, the client source/peer), so they cannot drift apart. It does not open
// connections or volumes.
//
// The protocol is HTTP/1.1 over mutual TLS; either side refuses a peer that the ca.crt in its TLSDir did not sign.
//
//	HEAD /volume            Content-Length is the disk's size, ETag (strong) its version, Berth-Content "disk". The version of a
//	                        file is made of its identity, size and times; that of a block device, which cannot prove that
//	                        it did not change, is new with every start of the server and begins with "device-.
//	                        Berth-Content "files": the volume has files and no disk.
//	GET  /volume            of a disk: 200, or 206 to Range: bytes=a-b. If-Match with the version is required as soon
//	                        as one is known: 412 means the volume changed. With Accept: application/vnd.berth.frames the
//	                        body is frames (below) of just the range asked for, with the same Content-Type, no
//	                        Content-Length, and Content-Range as usual; without it the bytes as they are.
//	GET  /volume/extents?from=a&to=b
//	                        a JSON array of [offset, length] in order: where in [a, b) the disk may hold anything but
//	                        zeroes. 404 if the server cannot tell without reading (a block device): all of it may then.
//	GET  /volume/files      of a filesystem: 200 and its files but for the disk, as package filetree writes them
//	                        (application/vnd.berth.files): never a range, no length and no version. The trailer Berth-Trouble
//	                        is a Trouble as JSON if not all of them came.
//
// A frame is a header of 12 bytes and its payload: kind, size and stored size, each a big-endian uint32. Size is how
// many bytes of the disk it stands for, at most MaxFrame; stored is how many bytes of payload follow.
// Zero has no payload; Plain's payload is the bytes; Zstd's is one zstd frame of them. The sizes add up to the range;
// a body that ends earlier was cut off.
package peerproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// The names of the protocol.
const (
	VolumePath    = "/volume"
	ExtentsPath   = "/volume/extents"
	FilesPath     = "/volume/files"
	ContentHeader = "Berth-Content"
	OnlyFiles     = "files" // a value of ContentHeader
	FramesType    = "application/vnd.berth.frames"
	FilesType     = "application/vnd.berth.files"
	// TroubleTrailer holds a Trouble.
	TroubleTrailer = "Berth-Trouble"
)

// Trouble is why not all files of a volume were sent: for a reason, or without one, because they cannot be copied.
type Trouble struct {
	Reason task.Reason `json:"reason,omitempty"`
	Detail string      `json:"detail"`
}

// MaxFrame is the most bytes one frame stands for, so that a peer cannot make the other allocate more.
const MaxFrame = 1 << 20

const (
	kindZero uint32 = iota
	kindPlain
	kindZstd
)

const headerSize = 12

// Writer frames bytes. It is for one goroutine.
type Writer struct {
	w    io.Writer
	enc  *zstd.Encoder
	out  []byte
	head [headerSize]byte
	skip int // frames to send plain before compression is tried again
}

// NewWriter frames onto w.
func NewWriter(w io.Writer) (*Writer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(MaxFrame), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("make a zstd encoder: %w", err)
	}
	return &Writer{w: w, enc: enc}, nil
}

// NewPlainWriter frames onto w without compressing: where the network is faster than compression.
func NewPlainWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write frames p. Every run of zero pages becomes one frame without payload.
func (w *Writer) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, zero := zeropage.Run(p[done:min(len(p), done+MaxFrame)], 0)
		var err error
		if zero {
			err = w.Zeroes(int64(n))
		} else {
			err = w.data(p[done : done+n])
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Zeroes frames n zero bytes.
func (w *Writer) Zeroes(n int64) error {
	for n > 0 {
		size := min(n, MaxFrame)
		if err := w.frame(kindZero, int(size), nil); err != nil {
			return err
		}
		n -= size
	}
	return nil
}

// skipAfter is how many frames are sent uncompressed after one that did not get smaller: encrypted or compressed data comes in
// long ranges, and trying each frame would cost more than the network.
const skipAfter = 16

func (w *Writer) data(p []byte) error {
	if w.enc == nil {
		return w.frame(kindPlain, len(p), p)
	}
	if w.skip > 0 {
		w.skip--
		return w.frame(kindPlain, len(p), p)
	}
	w.out = w.enc.EncodeAll(p, w.out[:0])
	if len(w.out) > len(p)-len(p)/8 {
		w.skip = skipAfter
		return w.frame(kindPlain, len(p), p)
	}
	return w.frame(kindZstd, len(p), w.out)
}

func (w *Writer) frame(kind uint32, size int, payload []byte) error {
	binary.BigEndian.PutUint32(w.head[0:], kind)
	binary.BigEndian.PutUint32(w.head[4:], uint32(size))
	binary.BigEndian.PutUint32(w.head[8:], uint32(len(payload)))
	if _, err := w.w.Write(w.head[:]); err != nil {
		return err
	}
	if len(payload) == 0 {
		return nil
	}
	_, err := w.w.Write(payload)
	return err
}

// ErrFrame is a body that does not follow the protocol.
var ErrFrame = errors.New("malformed frame")

// Reader undoes Writer. A body that ends before the range does is io.ErrUnexpectedEOF. It is for one goroutine.
type Reader struct {
	r      io.Reader
	left   int64 // bytes of the range not read yet
	dec    *zstd.Decoder
	zeroes int    // of the current frame
	plain  int    // of the current frame, still in r
	rest   []byte // decoded bytes of the current frame
	buf    []byte // its payload
	out    []byte
}

// NewReader reads a range of n bytes.
func NewReader(r io.Reader, n int64) (*Reader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxFrame),
		zstd.WithDecoderMaxWindow(MaxFrame))
	if err != nil {
		return nil, fmt.Errorf("make a zstd decoder: %w", err)
	}
	return &Reader{r: r, left: n, dec: dec}, nil
}

// Reset begins another range of n bytes, which follows in what is read.
func (r *Reader) Reset(n int64) { r.left, r.zeroes, r.plain, r.rest = n, 0, 0, nil }

// Close gives the decoder's memory back; it does not close what is read.
func (r *Reader) Close() { r.dec.Close() }

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.begin(); err != nil {
		return 0, err
	}
	if r.zeroes == 0 {
		return r.take(p)
	}
	n := min(len(p), r.zeroes)
	clear(p[:n])
	r.zeroes -= n
	r.left -= int64(n)
	return n, nil
}

// Next is Read for callers that need not have zeroes as bytes: it fills some of p, or returns how many zeroes come next.
func (r *Reader) Next(p []byte) (n int, zeroes int64, err error) {
	if err := r.begin(); err != nil {
		return 0, 0, err
	}
	if r.zeroes == 0 {
		n, err = r.take(p)
		return n, 0, err
	}
	zeroes = int64(r.zeroes)
	r.zeroes = 0
	r.left -= zeroes
	return 0, zeroes, nil
}

// begin makes sure that there is a frame to read from.
func (r *Reader) begin() error {
	for r.zeroes == 0 && r.plain == 0 && len(r.rest) == 0 {
		if r.left == 0 {
			return io.EOF
		}
		if err := r.next(); err != nil {
			return err
		}
	}
	return nil
}

// take reads bytes of the current frame, which has some.
func (r *Reader) take(p []byte) (n int, err error) {
	if r.plain > 0 {
		n, err = r.r.Read(p[:min(len(p), r.plain)])
		if err != nil && n == 0 {
			return 0, unexpected(err)
		}
		r.plain -= n
	} else {
		n = copy(p, r.rest)
		r.rest = r.rest[n:]
	}
	r.left -= int64(n)
	return n, nil
}

// next reads a frame's header, and its payload unless Read can hand that through.
func (r *Reader) next() error {
	var head [headerSize]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return unexpected(err)
	}
	kind := binary.BigEndian.Uint32(head[0:])
	size := binary.BigEndian.Uint32(head[4:])
	stored := binary.BigEndian.Uint32(head[8:])
	if size == 0 || size > MaxFrame || int64(size) > r.left || stored > size {
		return fmt.Errorf("%w: kind %d stands for %d bytes in %d, with %d left", ErrFrame, kind, size, stored, r.left)
	}
	switch {
	case kind == kindZero && stored == 0:
		r.zeroes = int(size)
	case kind == kindPlain && stored == size:
		r.plain = int(size)
	case kind == kindZstd:
		return r.expand(int(size), int(stored))
	default:
		return fmt.Errorf("%w: kind %d stands for %d bytes in %d", ErrFrame, kind, size, stored)
	}
	return nil
}

func (r *Reader) expand(size, stored int) error {
	if r.buf == nil {
		r.buf = make([]byte, MaxFrame)
	}
	if _, err := io.ReadFull(r.r, r.buf[:stored]); err != nil {
		return unexpected(err)
	}
	out, err := r.dec.DecodeAll(r.buf[:stored], r.out[:0])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if len(out) != size {
		return fmt.Errorf("%w: %d bytes where the header says %d", ErrFrame, len(out), size)
	}
	r.out, r.rest = out, out
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Extents is the document at ExtentsPath.
type Extents [][2]int64

// Check returns whether a peer's document is in order and inside [from, to).
func (e Extents) Check(from, to int64) error {
	at := from
	for _, x := range e {
		if x[0] < at || x[1] <= 0 || x[1] > math.MaxInt64-x[0] || x[0]+x[1] > to {
			return fmt.Errorf("extent of %d bytes at %d is not in order inside [%d, %d)", x[1], x[0], at, to)
		}
		at = x[0] + x[1]
	}
	return nil
}
