package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode/zstd"
)

// unzstd decodes a zstd file. One goroutine reads frames and decodes their blocks into pages; next, on another one, runs
// the checksum over them, which takes a third as long as decoding does.
type unzstd struct {
	in     *input
	memory int64
	every  int64
	d      *zstd.Decoder
	stop   chan struct{}
	once   sync.Once

	mu   sync.Mutex
	free []*zpage

	pages []*zpage // that the decoder has, oldest first
	last  *zpage   // the one being filled
	ready chan *zpage
	base  int64 // of the first page's beginning in the decoded file
	from  int64 // where the last state was

	begun bool // a frame was seen
	hash  *xxhash.Digest
}

// zpage is a page of output. It is free when the reader and the decoder are both done with it.
type zpage struct {
	buf        []byte
	refs       int
	begin, end int
	frames     []frameEnd // that end in it
	state      *State
	err        error // behind it
}

// frameEnd is where a frame ends in a page, and the checksum it should have.
type frameEnd struct {
	at  int
	sum int64 // -1 if it has none
	off int64 // where that is in the source
}

const zstdStateVersion = 1

func newZstd(src io.Reader, o Options) (Reader, error) {
	z := &unzstd{memory: o.Memory, every: o.Every, stop: make(chan struct{}), ready: make(chan *zpage, 1), hash: xxhash.New()}
	lead := 0
	if s := o.Resume; s != nil {
		if len(s.Data) != 1 || s.Data[0] != zstdStateVersion || s.In < 0 || s.Out < 0 {
			return nil, errors.New("resume a zst stream: the state is not one this version made")
		}
		lead = int(s.Out & 4095)
		z.base, z.from, z.begun = s.Out-int64(lead), s.Out, true
	}
	z.in = newInput(src, o)
	z.d = zstd.New(z, lead)
	go z.run(lead)
	return newAhead(Zstd, z, o), nil
}

// run decodes the whole file.
func (z *unzstd) run(lead int) {
	err := z.file()
	if z.last == nil {
		z.last = z.fresh()
		z.last.begin, z.last.end = lead, lead
	} else {
		z.last.end = (z.d.At()-1)&(zstd.PageSize-1) + 1
	}
	z.last.err = err
	_ = z.send() // nobody to tell after a close
}

// file is io.EOF at the file's end.
func (z *unzstd) file() error {
	for {
		err := z.frame()
		if errors.Is(err, io.EOF) {
			return bad(Zstd, z.in.off, "the stream ends in the middle")
		}
		if errors.Is(err, errNoFrame) {
			return io.EOF
		}
		if err != nil {
			return err
		}
		select {
		case <-z.stop:
			return errClosed
		default:
		}
	}
}

var errNoFrame = errors.New("no frame follows")

// frame decodes one frame, or passes over one without data.
func (z *unzstd) frame() error {
	begin := z.in.off
	if err := z.in.need(1); errors.Is(err, io.EOF) && z.begun {
		return errNoFrame
	}
	if err := z.in.need(4); err != nil {
		return err
	}
	head := z.in.rest[:4]
	switch {
	case skippable(head):
		z.begun = true
		return z.skip()
	case binary.LittleEndian.Uint32(head) != binary.LittleEndian.Uint32(zstdMagic):
		return bad(Zstd, begin, "no zstd frame where one has to be but % x", head)
	}
	z.begun = true
	z.in.take(4)
	f, err := z.frameHeader()
	if err != nil {
		return err
	}
	at := z.base + int64(z.d.At())
	z.d.Frame(int(f.window))
	if at-z.from >= z.every {
		z.from = at
		z.note(&State{Kind: Zstd, In: begin, Out: at, Data: []byte{zstdStateVersion}})
	}
	if err := z.blocks(int(min(f.window, zstd.MaxBlock))); err != nil {
		return err
	}
	if size := z.base + int64(z.d.At()) - at; f.size >= 0 && size != f.size {
		return bad(Zstd, z.in.off, "a frame decodes to %d bytes and says %d", size, f.size)
	}
	return z.frameEnd(f.sum)
}

// note leaves a state in the page it belongs to.
func (z *unzstd) note(s *State) {
	if z.last != nil {
		z.last.state = s
	}
}

// frameEnd reads the checksum behind a frame, if there is one.
func (z *unzstd) frameEnd(has bool) error {
	end := frameEnd{sum: -1, off: z.in.off}
	if has {
		if err := z.in.need(4); err != nil {
			return err
		}
		end.sum = int64(binary.LittleEndian.Uint32(z.in.rest))
		z.in.take(4)
	}
	if z.last == nil { // nothing was ever decoded
		z.last = z.fresh()
		z.last.begin = z.d.At()
		z.last.end = z.last.begin
		end.at = z.last.begin
		defer func() { z.last = nil }()
		z.last.frames = append(z.last.frames, end)
		return z.send()
	}
	end.at = (z.d.At()-1)&(zstd.PageSize-1) + 1
	z.last.frames = append(z.last.frames, end)
	return nil
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

// blocks decodes the blocks of a frame, each of which is at most limit bytes.
func (z *unzstd) blocks(limit int) error {
	var scratch [zstd.MaxBlock]byte
	for {
		off := z.in.off
		if err := z.in.need(3); err != nil {
			return err
		}
		head := uint(z.in.rest[0]) | uint(z.in.rest[1])<<8 | uint(z.in.rest[2])<<16
		z.in.take(3)
		size, last := int(head>>3), head&1 == 1
		kind := head >> 1 & 3
		if size > limit || kind == 3 {
			return bad(Zstd, off, "a block of type %d with %d bytes", kind, size)
		}
		n := size
		if kind == 1 {
			n = 1
		}
		p, err := z.piece(n, scratch[:])
		if err != nil {
			return err
		}
		switch kind {
		case 0:
			z.d.Raw(p)
		case 1:
			z.d.Run(p[0], size)
		default:
			if err := z.d.Block(p, limit); err != nil {
				return bad(Zstd, off, "%w", err)
			}
		}
		if last {
			return nil
		}
	}
}

// piece takes n bytes, in scratch if they do not lie together.
func (z *unzstd) piece(n int, scratch []byte) ([]byte, error) {
	if len(z.in.rest) >= n {
		p := z.in.rest[:n]
		z.in.take(n)
		return p, nil
	}
	if _, err := io.ReadFull(z.in, scratch[:n]); err != nil {
		if z.in.err == nil && errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return nil, err
	}
	return scratch[:n], nil
}

// zframe is what a frame says of itself.
type zframe struct {
	window, size int64 // size is -1 if it does not say
	sum          bool
}

func (z *unzstd) frameHeader() (f zframe, err error) {
	if err := z.in.need(1); err != nil {
		return f, err
	}
	b := z.in.rest[0]
	single := b&0x20 != 0
	dict, field := []int{0, 1, 2, 4}[b&3], []int{0, 2, 4, 8}[b>>6]
	window := 1
	if single {
		window = 0
		field = max(field, 1)
	}
	n := 1 + window + dict + field
	if err := z.in.need(n); err != nil {
		return f, err
	}
	p := z.in.rest[1:n]
	defer z.in.take(n)
	if b&8 != 0 {
		return f, bad(Zstd, z.in.off, "a frame has reserved bits set")
	}
	var wide [8]byte
	copy(wide[:], p[window+dict:])
	f.size, f.sum = int64(binary.LittleEndian.Uint64(wide[:])), b&4 != 0
	switch {
	case field == 2:
		f.size += 256
	case field == 0:
		f.size = -1
	case f.size < 0:
		return f, bad(Zstd, z.in.off, "a frame of %d bytes", uint64(f.size))
	}
	f.window = f.size
	if !single {
		exp, mantissa := p[0]>>3, int64(p[0]&7)
		f.window = 1<<(10+exp) + 1<<(10+exp)/8*mantissa
	}
	var id [4]byte
	copy(id[:], p[window:window+dict])
	if binary.LittleEndian.Uint32(id[:]) != 0 {
		return f, &task.Error{Reason: task.UnsupportedImage, Err: errors.New("zst: the stream needs a dictionary that is not in it")}
	}
	if f.window > z.memory {
		return f, &task.Error{Reason: task.UnsupportedImage, Err: fmt.Errorf("zst: the stream needs a window of %d MiB and "+
			"the limit is %d MiB; compress it again without --long and --ultra", f.window>>20, z.memory>>20)}
	}
	return f, nil
}
