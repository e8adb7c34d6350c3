package format

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/qcow2"
	"github.com/berth-vm/berth/internal/transfer/format/raw"
	"github.com/berth-vm/berth/internal/transfer/format/sequential"
	"github.com/berth-vm/berth/internal/transfer/format/vdi"
	"github.com/berth-vm/berth/internal/transfer/format/vhd"
	"github.com/berth-vm/berth/internal/transfer/format/vhdx"
	"github.com/berth-vm/berth/internal/transfer/format/vmdk"
)

// Decoder takes an image apart that comes as a stream. The engine writes the stream to it as it comes and calls Finish at its
// end; the disk is complete when that returns. After any error the decoder is of no use.
//
// To survive a crash the engine now and then makes what it was given durable and keeps State. A later Resume continues with the
// byte at Offset, and with an Output that has forgotten what was parked beyond Parked. Putting the same extent again does no
// harm.
type Decoder struct {
	kind Kind
	stream
}

// stream is a decoder of one format.
type stream interface {
	io.Writer
	Finish(ctx context.Context) (size int64, err error)
	Offset() int64
	Parked() int64
	State() []byte
}

var errState = errors.New("checkpoint of the image decoder is damaged")

// NewDecoder makes a decoder for a stream that begins at the image's first byte.
func NewDecoder(kind Kind, out Output) (*Decoder, error) {
	if d := newRaw(kind, out); d != nil {
		return &Decoder{kind, d}, nil
	}
	plan, err := newPlan(kind)
	if err != nil {
		return nil, err
	}
	return &Decoder{kind, sequential.New(plan, out)}, nil
}

// Resume makes a decoder that continues where State was taken.
func Resume(state []byte, out Output) (*Decoder, error) {
	if len(state) == 0 || len(state) <= int(state[0]) {
		return nil, errState
	}
	n := 1 + int(state[0])
	kind, state := Kind(state[1:n]), state[n:]
	if d := newRaw(kind, out); d != nil {
		return &Decoder{kind, d}, d.Resume(state)
	}
	plan, err := newPlan(kind)
	if err != nil {
		return nil, errState
	}
	d, err := sequential.Resume(plan, out, state)
	if err != nil {
		return nil, fmt.Errorf("resume %s image: %w", kind, err)
	}
	return &Decoder{kind, d}, nil
}

// State returns the state that Resume needs, nil as long as there is nothing to continue from. See Decoder.
func (d *Decoder) State() []byte {
	state := d.stream.State()
	if state == nil {
		return nil
	}
	return append(append([]byte{byte(len(d.kind))}, d.kind...), state...)
}

// Kind returns the format. Of an Unsigned stream it is known after Finish.
func (d *Decoder) Kind() Kind { return d.kind }

// Finish is called at the end of the stream. It places the parked data and returns the size of the disk: the size that Begin was
// given, unless that was -1; then it may be less than the data that was put, and the rest does not belong to the disk.
func (d *Decoder) Finish(ctx context.Context) (int64, error) {
	size, err := d.stream.Finish(ctx)
	if r, ok := d.stream.(*raw.Decoder); ok && d.kind == Unsigned && err == nil {
		if d.kind = Raw; r.Trailed {
			d.kind = VHD
		}
	}
	return size, err
}

// Stream takes apart all of r and returns the size of the disk.
func Stream(ctx context.Context, kind Kind, r io.Reader, out Output) (int64, error) {
	d, err := NewDecoder(kind, out)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := r.Read(buf)
		if _, err := d.Write(buf[:n]); err != nil {
			return 0, err
		}
		if errors.Is(err, io.EOF) {
			return d.Finish(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
}

func newRaw(kind Kind, out Output) *raw.Decoder {
	switch kind {
	case Raw:
		return raw.New(out, 0, nil)
	case Unsigned:
		return raw.New(out, vhd.FooterSize, vhd.Trailer)
	case QCOW2, VMDK, VDI, VHD, VHDX:
	}
	return nil
}

func newPlan(kind Kind) (sequential.Plan, error) {
	switch kind {
	case QCOW2:
		return &qcow2.Plan{}, nil
	case VHD:
		return &vhd.Plan{}, nil
	case VMDK:
		return &vmdk.Plan{}, nil
	case VDI:
		return &vdi.Plan{}, nil
	case VHDX:
		return &vhdx.Plan{}, nil
	case Raw, Unsigned:
	}
	return nil, task.Errorf(task.UnsupportedImage, "Invalid format %s for image", kind)
}
