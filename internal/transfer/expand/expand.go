// Package expand undoes the coding of an image's compressed extents: one at a time, or by all processors on their way from a stream to
// the disk.
//
// Extents are untrusted: one may claim any size, so what it may need is bounded. The package does not know where extents come from,
// nor the compression of a whole image (package decode).
package expand

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/pkg/inflate"
)

// Most bounds one coded extent, on the disk and in the file: the largest cluster any format has is 2 MiB, and what
// is stored may be a little more than that.
const Most = 4 << 20

// Expander undoes the coding of extents. It is for one goroutine and keeps its memory.
type Expander struct {
	flate *inflate.Decoder
	zstd  *zstd.Decoder
	out   []byte
	spare []byte // for grains that reach beyond the end of the disk
}

// New makes an expander. Its caller closes it.
func New() *Expander { return &Expander{} }

// Close releases its memory.
func (x *Expander) Close() {
	if x.zstd != nil {
		x.zstd.Close()
	}
}

// Expand returns the e.Size bytes that p stands for, which are valid until the next call.
func (x *Expander) Expand(e format.Extent, p []byte) ([]byte, error) {
	if e.Coding == format.Plain {
		return p, nil
	}
	if e.Size > Most {
		return nil, Damaged(e, fmt.Errorf("it stands for more than %d bytes", Most))
	}
	if int64(cap(x.out)) < e.Size {
		x.out = make([]byte, max(e.Size, 64<<10))
	}
	out := x.out[:e.Size]
	return out, x.Into(out, e, p)
}

// Into fills out with the e.Size bytes that p, which is coded, stands for.
func (x *Expander) Into(out []byte, e format.Extent, p []byte) error {
	var n int
	var err error
	switch e.Coding {
	case format.Plain:
		n = copy(out, p)
	case format.Deflate, format.Zlib:
		n, err = x.inflate(e.Coding, out, p)
	case format.Zstd:
		n, err = x.unzstd(out, p)
	default:
		return Damaged(e, fmt.Errorf("coding %d is unknown", e.Coding))
	}
	if err != nil {
		return Damaged(e, err)
	}
	if n != len(out) {
		return Damaged(e, fmt.Errorf("it decodes to %d bytes instead of %d", n, len(out)))
	}
	return nil
}

func (x *Expander) inflate(c format.Coding, out, p []byte) (n int, err error) {
	if x.flate == nil {
		x.flate = new(inflate.Decoder)
	}
	if c == format.Zlib {
		if n, _, err = x.flate.Zlib(out, p); errors.Is(err, inflate.Full) {
			return n, x.sum(p)
		}
	} else {
		n, _, err = x.flate.Inflate(out, p)
	}
	if errors.Is(err, inflate.Full) {
		err = nil // the last cluster may reach beyond the end of the disk
	}
	return n, err
}

// sum checks the sum of a stream that has more than there is room for. The last grain of a disk may reach beyond its end; but so
// does one that is damaged, and only the sum at its end tells.
func (x *Expander) sum(p []byte) error {
	if x.spare == nil {
		x.spare = make([]byte, Most)
	}
	_, _, err := x.flate.Zlib(x.spare, p)
	return err
}

// unzstd decodes the one frame at the start of p; other data may follow it.
func (x *Expander) unzstd(out, p []byte) (int, error) {
	if x.zstd == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(2*Most), zstd.WithDecoderMaxWindow(2*Most), zstd.IgnoreChecksum(false))
		if err != nil {
			return 0, err
		}
		x.zstd = d
	}
	if err := x.zstd.Reset(bytes.NewReader(p)); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(x.zstd, out)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return n, nil // the caller says how many are missing
	}
	return n, err
}

// Damaged returns the error for an extent that cannot be decoded.
func Damaged(e format.Extent, err error) error {
	return task.Errorf(task.BadImage, "the image is damaged: the compressed data at byte %d of the file, which belongs at byte %d of the disk: %w",
		e.Host, e.Guest, err)
}
