package decode

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/berth-vm/berth/pkg/inflate"
)

// The sizes of gzip's buffers: a history for matches to reach back to, the chunk that is handed over, and room for the
// last match to go beyond it.
const (
	history  = 32 << 10
	overhang = 512
)

// stage is the position of a decoder in a member.
type stage uint8

const (
	atMember stage = iota
	atEntry        // in a body that is entered in the middle
	inBody
	atTrailer
)

// gunzip decodes a gzip file: members one after the other, perhaps padded with zeroes at the end. Its output goes
// straight into the chunks: each has the last 32 KiB of the one before in front of it, for matches to find their history.
type gunzip struct {
	in    *input
	every int64
	d     inflate.Decoder
	stage stage
	begun bool // a member was seen
	free  chan []byte

	buf   []byte
	since int    // in buf, where this member's output begins as far as it is there
	op    int    // in buf, where output goes
	sum   int    // in buf, up to where crc has come
	crc   uint32 // of the member
	size  uint32 // of the member, modulo 2^32 as gzip counts

	out   int64  // decoded bytes handed over
	due   int64  // where the next state is wanted
	state *State // not yet handed over

	spent  uint   // after a resume, bits of the first byte that were decoded before
	window []byte // after a resume, the output before
}

func newGzip(src io.Reader, o Options) (Reader, error) {
	g := &gunzip{every: o.Every, free: make(chan []byte, depth+3)}
	for range cap(g.free) {
		g.free <- nil
	}
	if o.Resume != nil {
		if err := g.restore(o.Resume); err != nil {
			return nil, err
		}
	}
	g.due = g.out + g.every
	g.in = newInput(src, o)
	return newAhead(Gzip, g, o), nil
}

func (g *gunzip) close() { g.in.close() }

// next decodes one chunk.
func (g *gunzip) next() chunk {
	g.advance()
	begin := history + int(g.out&4095) // where a resume began; otherwise the place in the stream is a multiple of 4 KiB
	var err error
	for err == nil && g.op < history+chunkSize {
		switch g.stage {
		case atMember:
			err = g.header()
		case atEntry:
			err = g.enter()
		case inBody:
			err = g.body()
		case atTrailer:
			err = g.trailer()
		}
	}
	g.digest()
	buf := g.buf
	c := chunk{p: buf[begin:min(g.op, history+chunkSize)], err: err, done: func() { g.free <- buf }}
	g.out += int64(len(c.p))
	if g.state != nil && g.state.Out <= g.out {
		c.state, g.state = g.state, nil
	}
	return c
}

// advance goes on to a fresh buffer.
func (g *gunzip) advance() {
	next := <-g.free
	if next == nil {
		next = make([]byte, history+chunkSize+overhang)
	}
	if g.buf == nil {
		g.op = history + int(g.out&4095)
		g.sum, g.since = g.op, g.op-copy(next[g.op-len(g.window):], g.window)
		g.window = nil
	} else {
		copy(next, g.buf[chunkSize:g.op])
		g.op -= chunkSize
		g.sum -= chunkSize
		g.since = max(0, g.since-chunkSize)
	}
	g.buf = next
}

// at returns how many decoded bytes lie before op.
func (g *gunzip) at() int64 { return g.out&^4095 + int64(g.op-history) }

// digest brings the checksum up to date.
func (g *gunzip) digest() {
	p := g.buf[g.sum:g.op]
	g.crc = crc32.Update(g.crc, crc32.IEEETable, p)
	g.size += uint32(len(p))
	g.sum = g.op
}

// body decodes until the chunk is full, a block ends or input is wanted.
func (g *gunzip) body() error {
	op, used, status, err := g.d.Decode(g.buf[g.since:], g.op-g.since, g.in.rest, g.in.eof)
	g.op = g.since + op
	g.in.take(used)
	switch status {
	case inflate.Failed:
		return bad(Gzip, g.in.off, "%w", err)
	case inflate.NeedInput:
		return g.in.truncated(Gzip, g.in.more())
	case inflate.NeedOutput:
	case inflate.Block:
		if g.at() >= g.due {
			g.save()
		}
	case inflate.Done:
		g.stage = atTrailer
	}
	return nil
}

// trailer checks the sums behind a member.
func (g *gunzip) trailer() error {
	if err := g.in.need(8); err != nil {
		return g.in.truncated(Gzip, err)
	}
	g.digest()
	crc, size := binary.LittleEndian.Uint32(g.in.rest), binary.LittleEndian.Uint32(g.in.rest[4:])
	if crc != g.crc {
		return bad(Gzip, g.in.off, "the data has checksum %08x, the stream says %08x", g.crc, crc)
	}
	if size != g.size {
		return bad(Gzip, g.in.off, "the data has %d bytes, the stream says %d (modulo 2^32)", g.size, size)
	}
	g.in.take(8)
	g.stage = atMember
	return nil
}

// The flags of a member's header.
const (
	flagSum     = 1 << 1
	flagExtra   = 1 << 2
	flagName    = 1 << 3
	flagComment = 1 << 4
	flagsKnown  = 0x1f
)

var errFlags = errors.New("a header with reserved flags")

// header reads what is before a member. It is io.EOF if there is none.
func (g *gunzip) header() error {
	if g.begun {
		if err := g.padding(); err != nil {
			return err
		}
	}
	h := headerReader{in: g.in}
	var fixed [10]byte
	h.read(fixed[:])
	flags := fixed[3]
	if h.err == nil && Detect(fixed[:]) != Gzip {
		return bad(Gzip, g.in.off, "no gzip header where one has to be but % x", fixed[:3])
	}
	if h.err == nil && flags&^flagsKnown != 0 {
		return bad(Gzip, g.in.off, "%w: %#02x", errFlags, flags)
	}
	if flags&flagExtra != 0 {
		var n [2]byte
		h.read(n[:])
		h.skip(int(binary.LittleEndian.Uint16(n[:])))
	}
	if flags&flagName != 0 {
		h.skipText()
	}
	if flags&flagComment != 0 {
		h.skipText()
	}
	if flags&flagSum != 0 {
		want := uint16(h.crc)
		var n [2]byte
		h.read(n[:])
		if got := binary.LittleEndian.Uint16(n[:]); h.err == nil && got != want {
			return bad(Gzip, g.in.off, "the header has checksum %04x and says %04x", want, got)
		}
	}
	if h.err != nil {
		return g.in.truncated(Gzip, h.err)
	}
	g.begun = true
	g.d.Reset()
	g.crc, g.size = 0, 0
	g.since, g.sum = g.op, g.op
	g.stage = inBody
	return nil
}

// padding passes over the zeroes that tapes leave behind the last member. It is io.EOF at the end.
func (g *gunzip) padding() error {
	for {
		for i, b := range g.in.rest {
			if b != 0 {
				g.in.take(i)
				return nil
			}
		}
		g.in.take(len(g.in.rest))
		if err := g.in.more(); err != nil {
			return err
		}
	}
}

// headerReader reads the parts of a header and adds them to the checksum. After an error it reads nothing.
type headerReader struct {
	in  *input
	crc uint32
	err error
}

func (h *headerReader) read(p []byte) {
	for i := 0; i < len(p) && h.err == nil; i++ {
		p[i], h.err = h.in.byte()
		h.crc = crc32.Update(h.crc, crc32.IEEETable, p[i:i+1])
	}
}

func (h *headerReader) skip(n int) {
	for b := make([]byte, 1); n > 0 && h.err == nil; n-- {
		h.read(b)
	}
}

// skipText skips a text that ends with a zero. Its length does not matter, because it is not stored.
func (h *headerReader) skipText() {
	b := make([]byte, 1)
	for h.read(b); b[0] != 0 && h.err == nil; h.read(b) {
	}
}
