// Package lzma undoes LZMA2, the compression inside xz, one of its chunks at a time. Output goes into pages that the caller
// provides and keeps for as long as the dictionary reaches back, so nothing is copied out of a dictionary and a stream needs no
// more memory than its dictionary.
//
// It does not know xz's framing, headers and checksums. It does not use unsafe: invalid input only causes an error.
package lzma

// PageSize is the size of the pages of output.
const (
	PageSize = 1 << pageBits
	pageBits = 20
)

// MaxPacked is the most bytes one chunk has.
const MaxPacked = 1 << 16

// Error says what is wrong with a stream.
type Error string

func (e Error) Error() string { return string(e) }

// The errors.
const (
	BadControl    Error = "a chunk of unknown type"
	BadProperties Error = "properties that LZMA2 does not allow"
	BadReset      Error = "a chunk relies on something that was never set"
	BadDistance   Error = "a distance reaches back before the beginning"
	BadData       Error = "a chunk contradicts its own length"
)

// Header is the header of a chunk.
type Header struct {
	Control  byte
	Props    byte // if Control says that there are new ones
	Packed   int  // bytes that follow
	Unpacked int  // bytes they decode to
}

// HeaderSize returns how many bytes the header has that begins with control.
func HeaderSize(control byte) (int, error) {
	switch {
	case control == 0:
		return 1, nil
	case control <= 2:
		return 3, nil
	case control < 0x80:
		return 0, BadControl
	case control < 0xc0:
		return 5, nil
	}
	return 6, nil
}

// ParseHeader reads a header of HeaderSize bytes. The end of the stream is a header with Control 0.
func ParseHeader(p []byte) Header {
	h := Header{Control: p[0]}
	switch {
	case h.Control == 0:
	case h.Control <= 2:
		h.Packed = (int(p[1])<<8 | int(p[2])) + 1
		h.Unpacked = h.Packed
	default:
		h.Unpacked = (int(h.Control&0x1f)<<16 | int(p[1])<<8 | int(p[2])) + 1
		h.Packed = (int(p[3])<<8 | int(p[4])) + 1
		if h.Control >= 0xc0 {
			h.Props = p[5]
		}
	}
	return h
}

// Pages provides the pages of output.
type Pages interface {
	// Page is called when the page before is full or there is none yet. It gives PageSize bytes.
	Page() ([]byte, error)
	// Release is called when the dictionary no longer reaches a page. Until then it must stay as it is.
	Release(page []byte)
}

// Decoder decodes the chunks of one LZMA2 stream after the other. The zero value is not ready; see Reset.
type Decoder struct {
	probs
	lc, lp, pb uint
	state      uint32
	rep        [4]uint32

	rng, code uint32
	ip        int
	in        [1 << 17]byte // the chunk; twice as large as one, so that a masked index needs no check

	dict    int      // size of the dictionary
	pages   [][]byte // of the output; those the dictionary does not reach are nil
	pos     int      // in the last page
	origin  int      // where the dictionary was last reset, counted from the beginning of the first page
	pending int      // what is left of a match that did not fit into its page

	needDict, needProps, needState bool
}

// Reset makes d ready for another stream with a dictionary of this size, whose output begins at lead in its first page.
// Finish must have been called after the stream before.
func (d *Decoder) Reset(dict, lead int) {
	d.dict, d.pos, d.origin, d.pending = dict, lead, lead, 0
	d.needDict, d.needProps, d.needState = true, true, true
}

// Finish releases the pages the decoder still has.
func (d *Decoder) Finish(pages Pages) {
	for _, page := range d.pages {
		if page != nil {
			pages.Release(page)
		}
	}
	clear(d.pages)
	d.pages = d.pages[:0]
}

// At returns how many bytes were written, in pages counted from the beginning of the first one.
func (d *Decoder) At() int {
	if len(d.pages) == 0 {
		return d.pos
	}
	return (len(d.pages)-1)<<pageBits + d.pos
}

// Chunk decodes one chunk, whose packed bytes are given.
func (d *Decoder) Chunk(h Header, packed []byte, pages Pages) error {
	if err := d.begin(h); err != nil {
		return err
	}
	if h.Control < 0x80 {
		return d.stored(packed, pages)
	}
	if len(packed) < 5 || len(packed) > MaxPacked || packed[0] != 0 {
		return BadData
	}
	n := copy(d.in[:], packed)
	clear(d.in[n : n+64])
	d.code = uint32(packed[1])<<24 | uint32(packed[2])<<16 | uint32(packed[3])<<8 | uint32(packed[4])
	d.rng, d.ip = 1<<32-1, 5
	for left := h.Unpacked; left > 0; {
		page, err := d.room(pages)
		if err != nil {
			return err
		}
		begin := d.pos
		limit := min(len(page), begin+left)
		if err := d.run(page, limit); err != nil {
			return err
		}
		if d.ip > n {
			return BadData
		}
		left -= d.pos - begin
	}
	if d.rng < 1<<24 {
		d.rng <<= 8
		d.code = d.code<<8 | uint32(d.in[d.ip])
		d.ip++
	}
	if d.pending != 0 || d.ip != n || d.code != 0 {
		return BadData
	}
	return nil
}

// begin does what a chunk's control byte asks for.
func (d *Decoder) begin(h Header) error {
	if h.Control == 1 || h.Control >= 0xe0 {
		d.origin = d.At()
		d.needDict, d.needProps = false, true
	}
	if d.needDict {
		return BadReset
	}
	if h.Control < 0x80 {
		return nil
	}
	if h.Control >= 0xc0 {
		if err := d.properties(h.Props); err != nil {
			return err
		}
		d.needProps = false
	}
	if d.needProps {
		return BadReset
	}
	if h.Control >= 0xa0 {
		d.resetState()
		d.needState = false
	}
	if d.needState {
		return BadReset
	}
	return nil
}

func (d *Decoder) properties(b byte) error {
	if b > (4*5+4)*9+8 {
		return BadProperties
	}
	d.lc, d.lp, d.pb = uint(b%9), uint(b/9%5), uint(b/45)
	if d.lc+d.lp > 4 {
		return BadProperties
	}
	return nil
}

func (d *Decoder) resetState() {
	d.state, d.rep = 0, [4]uint32{}
	d.reset(d.lc + d.lp)
}

// room returns the page that output goes to.
func (d *Decoder) room(pages Pages) ([]byte, error) {
	if n := len(d.pages); n > 0 && d.pos < PageSize {
		return d.pages[n-1], nil
	}
	page, err := pages.Page()
	if err != nil {
		return nil, err
	}
	if len(d.pages) > 0 {
		d.pos = 0
	}
	d.pages = append(d.pages, page[:PageSize])
	if i := (d.At()-d.dict)>>pageBits - 1; i >= 0 { // out of reach now
		pages.Release(d.pages[i])
		d.pages[i] = nil
	}
	return page, nil
}

// stored copies a chunk that is not compressed.
func (d *Decoder) stored(packed []byte, pages Pages) error {
	for len(packed) > 0 {
		page, err := d.room(pages)
		if err != nil {
			return err
		}
		n := copy(page[d.pos:], packed)
		packed = packed[n:]
		d.pos += n
	}
	return nil
}
