// Package format reads disk image formats: each sub-package is one of them. It turns tables into extents; it does not
// fetch, decompress or write the data the extents speak of, and it never opens a file an image names.
//
// Images come from strangers. Every size is checked before it is allocated or multiplied, tables are read once, and
// whatever is wrong is a *task.Error that says what and where.
package format

import "context"

// Kind is a disk image format.
type Kind string

// The formats. Whatever has no other signature is Raw.
const (
	Raw   Kind = "raw"
	QCOW2 Kind = "qcow2"
	VMDK  Kind = "vmdk"
	VDI   Kind = "vdi"
	VHD   Kind = "vhd"
	VHDX  Kind = "vhdx"
)

// Coding is how an extent's bytes are stored.
type Coding uint8

// The codings. Deflate is a bare RFC 1951 stream, Zlib one with RFC 1950's header and sum, Zstd one frame.
const (
	Plain Coding = iota
	Deflate
	Zlib
	Zstd
)

// Extent says which bytes of the file are which bytes of the disk. What no extent speaks of reads as zeroes.
type Extent struct {
	Host   int64 // where the stored bytes begin in the file
	Stored int64 // how many; of a coded extent at most this many (the stream itself says where it ends)
	Guest  int64 // where they belong on the disk
	Size   int64 // how many they are there; equal to Stored if Plain
	Coding Coding
}

// Image is an image whose file can be read anywhere.
type Image interface {
	Size() int64 // of the disk
	// Extents returns the extents whose Host is in [from, to), in order of Host, disjoint on the disk. The engine asks
	// for one window of the file after another so that the map of a huge image is never in memory as a whole.
	Extents(ctx context.Context, from, to int64) ([]Extent, error)
	// Granule is the smallest distance between the Host of two extents on average (a cluster, a grain), by which the
	// engine chooses its windows.
	Granule() int64
}

// Output takes an image apart that comes as a stream and cannot be read again.
type Output interface {
	// Begin says how large the disk is, once, before anything else. An error ends the stream: it does not fit.
	Begin(size int64) error
	// Put hands over the stored bytes of one extent (still coded; of a coded extent there may be bytes beyond its end).
	// p is only valid during the call.
	Put(e Extent, p []byte) error
	// Park keeps bytes whose place on the disk is not known yet, on the target itself, and says where it keeps them.
	Park(p []byte) (at int64, err error)
	// Parked reads them back. Putting may move parked bytes but Parked always finds them by the same number.
	Parked(p []byte, at int64) error
}
