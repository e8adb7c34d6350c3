// Package source reaches the bytes of an image where they lie: each sub-package is one kind of place. It hands over
// bytes exactly as they are there; it does not know compression, disk formats or where the bytes go.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Blob is one object at a source. It is safe for concurrent use where Info.Ranged says so.
type Blob interface {
	Info() Info
	// Open reads n bytes from off, or to the end if n is negative. The caller closes the reader; cancelling ctx ends
	// it. A blob that is not Ranged can only be opened once, at offset 0, to the end.
	// Fewer bytes than asked for are an error of the reader (io.ErrUnexpectedEOF inside), never a silent short read.
	// Errors that a person or a retry can act on are *task.Error.
	Open(ctx context.Context, off, n int64) (io.ReadCloser, error)
	Close() error
}

// Info describes a blob before it is read.
type Info struct {
	Name   string // how messages call it: a URL or path without credentials
	Size   int64  // bytes, -1 if the source does not say
	Ranged bool   // Open may be called with any range, and concurrently
	// Resumes is set for a blob that is not Ranged but can be continued: Open may be called with any offset, to the end, and asks the
	// sender to continue from there; the reader of an earlier Open ends.
	Resumes bool
	// Version proves that the bytes are still the same ones (a strong ETag, a digest, size and time of a file); empty
	// if the source cannot, and then an interrupted transfer starts over.
	Version string
	// Weak says why Version does not prove as much as it should, in words that follow the source's name; empty if it does.
	// Only a checksum of the whole can then tell whether bytes that were read at different times belong together.
	Weak string
	// Passing says that Version is only good until the server starts again, in words that follow the source's name; empty if it
	// is good for ever.
	Passing string
	// MediaType is the source's media type for the bytes, without parameters; "" if it gives none.
	MediaType string
	// Labels come with the image and belong on the claim.
	Labels map[string]string
	// Member is set if the image is not the blob but a file in it.
	Member *Member
}

// Span returns how many bytes an Open(off, n) of the source is for: what is not ranged is read from its beginning to its end
// (-1), n below 0 is all the rest.
func (i Info) Span(off, n int64) (int64, error) {
	if !i.Ranged {
		if off != 0 || n >= 0 {
			return 0, fmt.Errorf("read %s from %d: it has no ranges", i.Name, off)
		}
		return -1, nil
	}
	if n < 0 {
		n = i.Size - off
	}
	if off < 0 || n < 0 || off > i.Size-n {
		return 0, fmt.Errorf("read %s: %d bytes from %d are beyond its end at %d", i.Name, n, off, i.Size)
	}
	return n, nil
}

// Member is a file in a tar archive, which the blob is: as it is or compressed as a whole (the blob's first bytes say how). The
// file is Size bytes from Offset of the decompressed archive, so that an interrupted transfer can continue from any state of the
// decompressor.
type Member struct {
	Name   string
	Offset int64
	Size   int64
	// Digest is "sha256:..." of the whole blob's bytes as they are at the source. The reader of the blob must compare it before
	// the disk counts as done.
	Digest string
	// Annotations are the annotations of the blob in the image's manifest.
	Annotations map[string]string
	// Rest reads what follows the file in the decompressed archive, from Offset+Size, and says what is wrong with it:
	// only the end of the archive shows that there is no second disk.
	Rest func(io.Reader) error
}

// ErrNoDisk is wrapped by the error of opening a volume that has files, but no disk.
var ErrNoDisk = errors.New("there is no disk")

// WithInfo is b under other Info.
func WithInfo(b Blob, info Info) Blob { return &described{Blob: b, info: info} }

type described struct {
	Blob
	info Info
}

func (d *described) Info() Info { return d.info }

// Sparse is a Blob that knows its ranges of zeroes (a local file, a peer), so that they need not be read.
type Sparse interface {
	Blob
	// Data returns where in [from, to) the blob may hold anything but zeroes, as offset and length, in order.
	Data(ctx context.Context, from, to int64) ([][2]int64, error)
}

// Runs is a Blob that comes in order, reports zeroes itself, and whose bytes are the disk: no format is detected in them.
type Runs interface {
	Blob
	// OpenRuns is Open to the end for callers that need not have zeroes as bytes.
	OpenRuns(ctx context.Context, off int64) (RunReader, error)
}

// RunReader reads runs of bytes and of zeroes.
type RunReader interface {
	// Next fills some of p, or says how many zeroes come next. The end is io.EOF.
	Next(p []byte) (n int, zeroes int64, err error)
	Close() error
}
