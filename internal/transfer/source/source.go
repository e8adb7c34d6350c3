// Package source reaches the bytes of an image where they lie: each sub-package is one kind of place. It hands over
// bytes exactly as they are there; it does not know compression, disk formats or where the bytes go.
package source

import (
	"context"
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

// Info is what a source says of a blob before it is read.
type Info struct {
	Name   string // how messages call it: a URL or path without credentials
	Size   int64  // bytes, -1 if the source does not say
	Ranged bool   // Open may be called with any range, and concurrently
	// Version proves that the bytes are still the same ones (a strong ETag, a digest, size and time of a file); empty
	// if the source cannot, and then an interrupted transfer starts over.
	Version string
	// Labels come with the image and belong on the claim.
	Labels map[string]string
}

// Sparse is a Blob that knows where it holds nothing but zeroes (a local file, a peer), so that nobody need read them.
type Sparse interface {
	Blob
	// Data returns where in [from, to) the blob may hold anything but zeroes, as offset and length, in order.
	Data(ctx context.Context, from, to int64) ([][2]int64, error)
}
