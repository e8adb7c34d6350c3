// Package filetree carries all files of a directory from one volume to another: Write makes a stream of them, Read makes them
// again from the stream. Kept are names, contents, holes, modes, times, links (hard ones too), named pipes and sockets, and as
// far as the reader of the stream may set them owners and extended attributes. Devices are left out, which no worker can make.
//
// Neither end trusts the other. The files are a tenant's: nothing that they name is followed, and a directory of any size or a
// tree of any shape takes a bounded share of memory. The stream may be forged by a user who has the keys of a server: nothing is
// made outside of the directory, and nothing in it is followed either (directory.Directory sees to that).
//
// It does not know which of the files is a guest's disk, or that there is a network.
//
// A stream is Magic, entries, and four zero bytes. An entry is the length of its header as a big-endian uint32, the header as
// JSON, and for a file its bytes in the frames of package peerproto.
package filetree

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/berth-vm/berth/internal/transfer/directory"
)

// Magic begins a stream.
const Magic = "berth tree 1\n"

// Bounds of what one entry, or one level of a tree, takes in memory.
const (
	headerMost = 1 << 20 // names of 4 KiB and 64 KiB of attributes, as base64, are a tenth of it
	// depthMost is how deep directories are nested: what can be named with one path has at most 2048.
	depthMost = 2048
	// namesAtOnce is how many names of one directory are in memory.
	namesAtOnce = 64
	// linksMost is how many files with several names are remembered until all of their names were seen, and nameBytesMost how
	// long their names are together.
	linksMost     = 1 << 16
	nameBytesMost = 8 << 20
	attrsMost     = 64 << 10
)

// kind is the kind of an entry.
type kind string

const (
	isFile   kind = "file"
	isDir    kind = "dir"
	isEnd    kind = "end" // of a directory: all of its entries came, and it gets what would have been in their way
	isLink   kind = "link"
	isSame   kind = "same" // another name of a file that came before
	isPipe   kind = "pipe"
	isSocket kind = "socket"
)

// header is one entry. Names are bytes: a filesystem does not ask for UTF-8.
type header struct {
	Kind  kind              `json:"kind"`
	Name  []byte            `json:"name"`
	To    []byte            `json:"to,omitempty"` // of links
	Size  int64             `json:"size,omitempty"`
	Mode  uint32            `json:"mode,omitempty"` // the twelve bits of permissions
	UID   int               `json:"uid,omitempty"`
	GID   int               `json:"gid,omitempty"`
	Time  int64             `json:"time,omitempty"` // of the last change, in nanoseconds
	Attrs map[string][]byte `json:"attrs,omitempty"`
}

// attributes returns what is set besides a name and contents.
func (h *header) attributes() directory.Attributes {
	return directory.Attributes{Mode: h.Mode, UID: h.UID, GID: h.GID, Modified: time.Unix(0, h.Time), Extended: h.Attrs}
}

func writeHeader(w io.Writer, h *header) error {
	b, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("describe %q: %w", h.Name, err)
	}
	if len(b) > headerMost {
		return fmt.Errorf("describe %q: it takes %d bytes", h.Name, len(b))
	}
	if _, err := w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// ErrStream is a stream that does not follow the format.
var ErrStream = errors.New("malformed stream of files")

// readHeader reads the next header; nil at the end.
func readHeader(r io.Reader) (*header, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, cut(err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 {
		return nil, nil
	}
	if n > headerMost {
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrStream, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, cut(err)
	}
	var h header
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStream, err)
	}
	if h.Size < 0 || h.Mode&^0o7777 != 0 || h.UID < 0 || h.GID < 0 {
		return nil, fmt.Errorf("%w: %q has size %d, mode %o and belongs to %d:%d", ErrStream, h.Name, h.Size, h.Mode, h.UID, h.GID)
	}
	return &h, nil
}

// cut returns the error for a stream that ended too early, with the reason of the side that ended it.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// modeBits returns the twelve bits of permissions.
func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
