// Package iscsi serves disks to iSCSI initiators (RFC 7143), to be read: one target with a LUN for each disk, discovery, CHAP, and
// the SCSI commands that a disk needs. QEMU's own initiator (libiscsi) and that of Linux use it.
//
// It knows nothing of where the bytes are. Unsupported features are refused in the negotiation: one connection a session, no
// digests, no recovery within a session, no writes. The size of a client's data is checked before memory is allocated for it, and
// a connection that is not logged in ends after a few seconds.
package iscsi

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// Disk is the disk behind a LUN. It is read concurrently. An error that wraps ErrBusy is answered with BUSY, which initiators try
// again; any other reports a bad medium.
type Disk interface {
	io.ReaderAt
	Size() int64
}

// ErrBusy is wrapped by the error of a disk that cannot be read now and may be readable soon.
var ErrBusy = errors.New("busy")

// LUN is a disk and who it is.
type LUN struct {
	Disk Disk
	// ID tells this disk from every other one, also of other targets: multipath goes by it. At most 64 printable characters.
	ID string
}

// blockSize is the size of a SCSI block.
const blockSize = 512

// blocks returns how many the disk has. The last one is filled up with zeroes.
func (l *LUN) blocks() uint64 { return (uint64(l.Disk.Size()) + blockSize - 1) / blockSize }

// Bounds of the memory that clients can make the server use.
const (
	connections   = 128              // at a time, of all initiators
	commands      = 64               // of one connection, received and not answered
	buffers       = 128              // of chunk bytes each, for all reads that are answered at a time; each connection has one more of its own
	ownBuffers    = 16               // of one connection among them
	chunk         = 256 << 10        // what is read and sent at a time
	longestRead   = 64 << 20         // of one command
	longestData   = 8192             // of what an initiator sends with a PDU: we never ask for data
	mostKeys      = 64               // in a negotiation
	loginRounds   = 16               // PDUs until a login is complete
	loginPatience = 15 * time.Second // until then
	sendPatience  = time.Minute      // for an initiator that does not read what it asked for
	mostLUNs      = 256
)

var be = binary.BigEndian
