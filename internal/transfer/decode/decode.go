// Package decode undoes the compression a whole image may be wrapped in: gzip, xz or zstd. It reads a stream once, from the
// front, in bounded memory, and decodes ahead of its reader on another goroutine, so that decoding and writing overlap. What
// undoes deflate and LZMA2 is in pkg/inflate and pkg/lzma, for others too.
//
// It does not know what is inside the stream. It looks at one layer only: an image that is compressed twice is not unwrapped
// twice, because that is never intended and every layer multiplies what a bomb can do. It does not judge how well a stream
// compresses either; a caller that knows the target's size sets Options.Limit.
package decode

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
)

// Kind is a compression. Report.Format appends its text to the name of a disk format: "qcow2.gz".
type Kind string

// The compressions. None is a stream that begins with none of the other signatures.
const (
	None Kind = ""
	Gzip Kind = "gz"
	Xz   Kind = "xz"
	Zstd Kind = "zst"
)

// HeadSize is how many bytes Detect needs; fewer suffice if the stream has no more.
const HeadSize = 6

var (
	gzipMagic = []byte{0x1f, 0x8b, 8} // 8 is deflate, the only method there is
	xzMagic   = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// Detect returns how a stream is compressed from its first bytes. It is never a matter of the name.
func Detect(head []byte) Kind {
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		return Gzip
	case bytes.HasPrefix(head, xzMagic):
		return Xz
	case bytes.HasPrefix(head, zstdMagic), skippable(head):
		return Zstd
	}
	return None
}

// skippable reports whether head begins with one of the zstd frames that hold no data (pzstd begins its files with one).
func skippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18
}

// Options are the bounds of a decoder. The zero value is the default for each.
type Options struct {
	// Limit is the most bytes the stream may decode to; more is a *task.Error with DoesNotFit. 0 is no limit.
	Limit int64
	// Memory bounds what a decoder holds in dictionaries and in blocks that are decoded at the same time. A stream that
	// needs more is refused with UnsupportedImage and the numbers. 0 is DefaultMemory.
	Memory int64
	// Resume continues where an earlier reader of the same bytes gave this state; the source then begins at Resume.In.
	Resume *State
	// Every is the smallest distance between two states, in decoded bytes. 0 is DefaultEvery.
	Every int64
}

// The defaults of Options. Memory leaves half of the worker's 128 MiB to everything else, and is enough for `xz -6`
// (8 MiB dictionary, 24 MiB blocks) and `zstd -19` (8 MiB window). Every is some tenths of a second's work.
const (
	DefaultMemory = 64 << 20
	DefaultEvery  = 64 << 20
)

// State is a place in a compressed stream from which decoding can begin again. It is plain data to be kept in a
// checkpoint; it is only good for the same kind and the same bytes.
type State struct {
	Kind Kind   `json:"kind"`
	In   int64  `json:"in"`  // where the source has to be read from
	Out  int64  `json:"out"` // how many decoded bytes come before
	Data []byte `json:"data,omitempty"`
}

// Reader is a decoded stream. It is for one goroutine. Whatever is wrong with the stream is a *task.Error that says
// where; an error of the source comes through as it is.
type Reader interface {
	io.Reader
	// Next lends the bytes that come next, until the following call of Next or Read; io.EOF comes with no bytes. It
	// saves the copy that Read makes. As long as Read is not mixed in, what it lends lies in memory as it does in the
	// stream, modulo 4 KiB, and begins and ends at multiples of 4 KiB but for the ends of the stream, the place where a
	// resume began, and xz blocks of odd sizes.
	Next() ([]byte, error)
	// State is the newest state at or before the bytes that Read has returned so far, nil while there is none. Its Out
	// may lie before the place where this reader began only if that was its Resume.
	State() *State
	// Close ends decoding. It does not close the source and does not wait for a read of it that is under way.
	Close() error
}

// NewReader decodes src, which is of the given kind. None hands src through, subject to Limit.
func NewReader(kind Kind, src io.Reader, o Options) (Reader, error) {
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.Resume != nil && o.Resume.Kind != kind {
		return nil, fmt.Errorf("resume a %q stream with the state of a %q stream", kind, o.Resume.Kind)
	}
	switch kind {
	case None:
		return newPlain(src, o), nil
	case Gzip:
		return newGzip(src, o)
	case Xz:
		return newXz(src, o)
	case Zstd:
		return newZstd(src, o)
	}
	return nil, fmt.Errorf("decode: no such compression %q", kind)
}

// Open decodes src as its first bytes say it is compressed.
func Open(src io.Reader, o Options) (Reader, error) {
	head := bufio.NewReaderSize(src, 64<<10)
	magic, err := head.Peek(HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return NewReader(Detect(magic), head, o)
}

// bad returns the error for a stream that is not what it says it is.
func bad(kind Kind, in int64, format string, args ...any) error {
	return task.Errorf(task.BadImage, "the %s stream is damaged near compressed byte %d: %w", kind, in, fmt.Errorf(format, args...))
}
