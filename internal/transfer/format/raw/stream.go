package raw

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Trailer looks at the last bytes of a stream of size bytes and says whether they are no part of the disk, and then how
// large that is.
type Trailer func(last []byte, size int64) (disk int64, ok bool)

// Decoder is a raw disk that comes as a stream. With a trailer it holds back the last sector.
type Decoder struct {
	out     extent.Output
	trailer Trailer
	hold    int    // bytes to hold back
	held    []byte // from pos on
	pos     int64
	begun   bool
	Trailed bool // the trailer was one
}

// errState reports a damaged checkpoint: the transfer starts over.
var errState = errors.New("checkpoint of the raw decoder is damaged")

// New makes a decoder. A nil trailer means that every byte is the disk's.
func New(out extent.Output, hold int, trailer Trailer) *Decoder {
	if trailer == nil {
		hold = 0
	}
	return &Decoder{out: out, trailer: trailer, hold: hold}
}

// Resume sets a new decoder to where State was taken.
func (d *Decoder) Resume(state []byte) error {
	if len(state) != 8 || binary.BigEndian.Uint64(state) > 1<<62 {
		return errState
	}
	d.pos = int64(binary.BigEndian.Uint64(state))
	return d.begin()
}

// Offset returns where the stream has to continue after State.
func (d *Decoder) Offset() int64 { return d.pos }

// Parked is always 0: a raw disk is placed as it comes.
func (d *Decoder) Parked() int64 { return 0 }

// State returns the offset; nil before the first byte.
func (d *Decoder) State() []byte {
	if !d.begun {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, uint64(d.pos))
}

func (d *Decoder) begin() error {
	if d.begun {
		return nil
	}
	d.begun = true
	return d.out.Begin(-1)
}

// Write takes the next bytes of the stream.
func (d *Decoder) Write(p []byte) (int, error) {
	if err := d.begin(); err != nil {
		return 0, err
	}
	// What is certainly not the end can go: first of what was held back, then of p.
	if free := min(len(d.held)+len(p)-d.hold, len(d.held)); free > 0 {
		if err := d.put(d.held[:free]); err != nil {
			return 0, err
		}
		d.held = append(d.held[:0], d.held[free:]...)
	}
	now := max(len(p)-d.hold, 0)
	if len(d.held) > 0 {
		now = 0
	}
	if err := d.put(p[:now]); err != nil {
		return 0, err
	}
	d.held = append(d.held, p[now:]...)
	return len(p), nil
}

func (d *Decoder) put(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	n := int64(len(p))
	if err := d.out.Put(extent.Extent{Host: d.pos, Stored: n, Guest: d.pos, Size: n}, p); err != nil {
		return err
	}
	d.pos += n
	return nil
}

// Finish says that the stream has ended and returns the size of the disk.
func (d *Decoder) Finish(context.Context) (int64, error) {
	if err := d.begin(); err != nil {
		return 0, err
	}
	if d.trailer != nil && len(d.held) == d.hold {
		if disk, ok := d.trailer(d.held, d.pos+int64(len(d.held))); ok {
			d.Trailed = true
			return disk, nil
		}
	}
	if err := d.put(d.held); err != nil {
		return 0, err
	}
	d.held = nil
	return d.pos, nil
}
