// Package extent is the language formats and the engine speak: which bytes of a file are which bytes of a disk, and
// the map of them for images too large to hold one in memory. It does not know any format, and it neither fetches,
// decompresses nor writes data.
package extent

import (
	"context"
	"errors"

	"github.com/berth-vm/berth/internal/task"
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
	// Size is how many they are there; equal to Stored if Plain. A coded extent at the end of the disk may decode to more than this:
	// the rest is dropped.
	Size   int64
	Coding Coding
}

// MaxExtents is how many extents Image.Extents returns at most: 2.5 MiB of them.
const MaxExtents = 1 << 16

// ErrCrowded is returned by Image.Extents for a window with more than MaxExtents extents. A smaller window may have fewer; Walk
// handles that.
var ErrCrowded = errors.New("more extents than fit one window")

// Image is an image whose file can be read anywhere. It is safe for concurrent use.
type Image interface {
	// Size is the size of the disk.
	Size() int64
	// Extents returns what the window [from, to) of the file holds, in order of Host, disjoint on the disk, at most
	// MaxExtents of them. Adjacent plain extents may come as one; a plain extent is cut where the window begins and
	// ends. A coded extent is never cut: it belongs to the window its Host is in and may reach beyond it. The engine
	// asks for one window after another so that the map of a huge image is never in memory as a whole; going forward
	// is cheap, going back may read the tables again.
	Extents(ctx context.Context, from, to int64) ([]Extent, error)
	// Granule is the usual distance between the Hosts of two extents (a cluster, a grain), by which the engine chooses its windows.
	Granule() int64
}

// Output receives the disk of an image that comes as a stream and cannot be read again.
type Output interface {
	// Begin is called first, once, with the size of the disk; -1 if the stream does not contain it (for a raw one, the decoder's
	// Finish returns it). An error ends the stream: the disk does not fit.
	Begin(size int64) error
	// Put hands over the stored bytes of one extent (still coded; of a coded extent there may be bytes beyond its end).
	// p is only valid during the call, and len(p) is e.Stored.
	Put(e Extent, p []byte) error
	// Park keeps bytes whose place on the disk is not known yet, on the target itself, and says where it keeps them:
	// at is the number of bytes parked before these, so numbers run on without gaps.
	Park(p []byte) (at int64, err error)
	// Parked reads them back. Putting may move parked bytes but Parked always finds them by the same number.
	Parked(p []byte, at int64) error
}

// Forgetter is an Output that can reuse the space of parked bytes that are not needed any more.
type Forgetter interface {
	// Forget says that n parked bytes from number at on are never read again.
	Forget(at, n int64)
}

// Walk goes through an image of the given file size window by window and hands each one's extents to do, which must
// not keep them. A window is smaller than asked where the file is crowded with extents.
func Walk(ctx context.Context, m Image, size, window int64, do func(from, to int64, es []Extent) error) error {
	for from := int64(0); from < size; {
		w := min(window, size-from)
		es, err := m.Extents(ctx, from, from+w)
		for errors.Is(err, ErrCrowded) && w > 1 {
			w /= 2
			es, err = m.Extents(ctx, from, from+w)
		}
		if errors.Is(err, ErrCrowded) {
			return task.Errorf(task.BadImage, "more than %d parts of the disk claim the same bytes at %d of the file", MaxExtents, from)
		}
		if err != nil {
			return err
		}
		if err := do(from, from+w, es); err != nil {
			return err
		}
		from += w
	}
	return nil
}
