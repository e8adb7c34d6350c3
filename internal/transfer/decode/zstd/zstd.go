// Package zstd undoes the blocks of zstd frames (RFC 8878). Output goes into pages that whoever calls provides and keeps
// for as long as the window reaches back, so nothing is copied out of a window, and a run of one byte, which is what the
// holes of a disk are, costs no more than to set memory.
//
// It does not know frames, checksums or skippable data; package decode does. It has no dictionaries. It uses no unsafe:
// whatever the input, the worst outcome is an error.
package zstd

// Sizes. A page is written up to PageSlack bytes over its end.
const (
	PageSize  = 1 << pageBits
	PageSlack = 64
	pageBits  = 20

	// MaxBlock is the most bytes a block has, coded or decoded.
	MaxBlock = 128 << 10
)

// Error is what is wrong with a block.
type Error string

func (e Error) Error() string { return string(e) }

// The errors.
const (
	BadLiterals  Error = "the literals of a block make no sense"
	BadHuffman   Error = "a Huffman table makes no sense"
	BadTable     Error = "a table of a block's sequences makes no sense"
	BadSequences Error = "the sequences of a block make no sense"
	BadOffset    Error = "an offset reaches back before the window"
	BadSize      Error = "a block decodes to more than it may"
)

// Pages is where output goes.
type Pages interface {
	// Page is called when the page before is full or there is none yet. It gives PageSize+PageSlack bytes.
	Page() []byte
	// Release is called when the window no longer reaches a page. Until then it must stay as it is.
	Release(page []byte)
}

// Decoder decodes the blocks of one frame after the other. It is large (600 KiB) and meant to be kept.
type Decoder struct {
	src  [srcHead + MaxBlock + srcTail]byte // the block, with room for reading before and behind it
	lits [MaxBlock + litSlack]byte
	seqs [MaxBlock / 3]sequence // a match has at least three bytes

	huff        huffman
	haveHuffman bool
	own         [3]table  // that the frame's blocks brought: literals, offsets, matches
	last        [3]*table // that the block before used, nil if there was none
	rep         [3]uint32

	pages  Pages
	list   [][]byte // of the output; those the window does not reach are nil
	gone   int      // how many of them are nil
	pos    int      // in the last page
	origin int      // where the frame began, counted from the beginning of the first page
	window int
}

const (
	srcHead  = 16
	srcTail  = 16
	litSlack = 32
)

// New makes a decoder whose output begins at lead in its first page.
func New(pages Pages, lead int) *Decoder { return &Decoder{pages: pages, pos: lead} }

// Frame begins a frame with a window of so many bytes. Its output follows that of the frame before, but its matches do
// not reach into it.
func (d *Decoder) Frame(window int) {
	d.window, d.origin = window, d.At()
	d.haveHuffman, d.last = false, [3]*table{}
	d.rep = [3]uint32{1, 4, 8}
}

// At is how many bytes were written, in pages counted from the beginning of the first one.
func (d *Decoder) At() int {
	if len(d.list) == 0 {
		return d.pos
	}
	return (len(d.list)-1)<<pageBits + d.pos
}

// room is the last page, which has room for at least one byte.
func (d *Decoder) room() []byte {
	if n := len(d.list); n > 0 && d.pos < PageSize {
		return d.list[n-1]
	}
	page := d.pages.Page()[:PageSize+PageSlack]
	if len(d.list) > 0 {
		d.pos = 0
	}
	d.list = append(d.list, page)
	for (d.gone+1)<<pageBits <= d.At()-d.window {
		d.pages.Release(d.list[d.gone])
		d.list[d.gone] = nil
		d.gone++
	}
	return page
}

// Raw takes a block that is not compressed.
func (d *Decoder) Raw(p []byte) {
	for len(p) > 0 {
		page := d.room()
		n := copy(page[d.pos:PageSize], p)
		p = p[n:]
		d.pos += n
	}
}

// Run takes a block that is n times the same byte.
func (d *Decoder) Run(v byte, n int) {
	for n > 0 {
		page := d.room()
		p := page[d.pos:min(PageSize, d.pos+n)]
		setAll(p, v)
		n -= len(p)
		d.pos += len(p)
	}
}

func setAll(p []byte, v byte) {
	if v == 0 || len(p) == 0 {
		clear(p)
		return
	}
	p[0] = v
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

// Block takes a compressed block. It may decode to at most limit bytes.
func (d *Decoder) Block(p []byte, limit int) error {
	if len(p) > MaxBlock {
		return BadSize
	}
	n := srcHead + copy(d.src[srcHead:], p)
	clear(d.src[n : n+srcTail])
	lits, at, err := d.literals(srcHead, n)
	if err != nil {
		return err
	}
	if lits > limit {
		return BadSize
	}
	seqs, total, err := d.sequences(at, n)
	if err != nil {
		return err
	}
	// total counts matches and the literals before them, all that is left of the literals comes behind.
	if total.literals > lits || total.matches+lits > limit {
		return BadSize
	}
	return d.execute(d.seqs[:seqs], lits, total.matches+lits)
}
