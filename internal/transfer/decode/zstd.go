package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// unzstd decodes a zstd file frame by frame, because a frame's beginning is where a resumed import can enter it.
type unzstd struct {
	in     *input
	memory int64
	every  int64
	d      *zstd.Decoder
	free   chan []byte

	frame *zframe // that is being decoded
	begun bool    // a frame was seen
	out   int64   // decoded bytes so far, from the stream's beginning
	from  int64   // where the last state was
}

const zstdStateVersion = 1

func newZstd(src io.Reader, o Options) (Reader, error) {
	z := &unzstd{memory: o.Memory, every: o.Every, free: make(chan []byte, depth+2)}
	for range cap(z.free) {
		z.free <- nil
	}
	if s := o.Resume; s != nil {
		if len(s.Data) != 1 || s.Data[0] != zstdStateVersion || s.In < 0 || s.Out < 0 {
			return nil, errors.New("resume a zst stream: the state is not one this version made")
		}
		z.out, z.from, z.begun = s.Out, s.Out, true
	}
	var err error
	// one goroutine: next is called on one of its own already. Windows are rounded up to what a header can say.
	if z.d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(uint64(max(o.Memory+o.Memory/8, zstd.MinWindowSize)))); err != nil {
		return nil, fmt.Errorf("decode zstd: %w", err)
	}
	z.in = newInput(src, o)
	return newAhead(Zstd, z, o), nil
}

func (z *unzstd) next() chunk {
	buf := <-z.free
	if buf == nil {
		buf = make([]byte, chunkSize)
	}
	begin := int(z.out & 4095)
	c := chunk{done: func() { z.free <- buf }}
	n := begin
	for n < len(buf) && c.err == nil {
		if z.frame == nil {
			var s *State
			if s, c.err = z.open(); s != nil {
				c.state = s
			}
			continue
		}
		var m int
		m, c.err = z.read(buf[n:])
		n += m
		z.out += int64(m)
	}
	c.p = buf[begin:n]
	return c
}

// open finds the next frame with data. It is io.EOF if there is none. The state is nil if the last one is near.
func (z *unzstd) open() (*State, error) {
	begin := z.in.off
	if err := z.in.need(1); errors.Is(err, io.EOF) && z.begun {
		return nil, io.EOF
	}
	if err := z.in.need(4); err != nil {
		return nil, z.in.truncated(Zstd, err)
	}
	head := z.in.rest[:4]
	if !skippable(head) && binary.LittleEndian.Uint32(head) != binary.LittleEndian.Uint32(zstdMagic) {
		return nil, bad(Zstd, begin, "no zstd frame where one has to be but % x", head)
	}
	z.begun = true
	if skippable(head) {
		return nil, z.in.truncated(Zstd, z.skip())
	}
	f, err := z.header()
	if err != nil {
		return nil, z.in.truncated(Zstd, err)
	}
	z.frame = f
	if err := z.d.Reset(f); err != nil {
		return nil, fmt.Errorf("decode zstd: %w", err)
	}
	if z.out-z.from < z.every {
		return nil, nil
	}
	z.from = z.out
	return &State{Kind: Zstd, In: begin, Out: z.out, Data: []byte{zstdStateVersion}}, nil
}

// read decodes more of the frame. Of two errors, it returns the first.
func (z *unzstd) read(p []byte) (int, error) {
	f := z.frame
	if n := f.hole(p); n > 0 {
		return n, f.made(p[:n])
	}
	n, err := z.d.Read(p)
	if made := f.made(p[:n]); made != nil {
		return n, made
	}
	switch {
	case err == nil:
		return n, nil
	case f.err != nil:
		return n, f.err
	case !errors.Is(err, io.EOF):
		return n, bad(Zstd, z.in.off, "%w", err)
	}
	z.frame = nil
	return n, f.end()
}

// skip passes over a frame without data.
func (z *unzstd) skip() error {
	if err := z.in.need(8); err != nil {
		return err
	}
	left := int64(binary.LittleEndian.Uint32(z.in.rest[4:]))
	z.in.take(8)
	for left > 0 {
		if err := z.in.need(1); err != nil {
			return err
		}
		n := min(left, int64(len(z.in.rest)))
		z.in.take(int(n))
		left -= n
	}
	return nil
}

func (z *unzstd) close() {
	z.in.close()
	z.d.Close()
}
