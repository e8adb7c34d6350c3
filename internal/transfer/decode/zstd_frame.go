package decode

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/task"
)

// zframe reads the bytes of one frame for the decoder, its header and its blocks, and ends where it ends. Blocks of zeroes that the
// decoder need not see are left out: holes of a disk are most of it, and the decoder fills them byte by byte. It knows the frame
// without its size and its checksum, therefore, and both are compared here.
type zframe struct {
	in      *input
	head    []byte // what is left of the header that the decoder gets
	left    int    // of the block at hand
	last    bool   // no block follows
	window  int    // how far it may look back
	zeroes  int    // that it was given last, up to window
	skipped int    // zeroes of a block that was left out, still to be handed over
	size    uint64 // of the frame's content
	sized   bool   // size is known
	out     uint64
	sum     *xxhash.Digest // nil: the frame has none
	err     error
}

// header takes a frame's header, and refuses what would need more memory than there is.
func (z *unzstd) header() (*zframe, error) {
	if err := z.in.need(5); err != nil {
		return nil, err
	}
	var h zstd.Header
	if err := z.in.need(zstd.HeaderMaxSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := h.Decode(z.in.rest); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, io.EOF
	} else if err != nil {
		return nil, bad(Zstd, z.in.off, "%w", err)
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	switch {
	case h.DictionaryID != 0:
		return nil, &task.Error{Reason: task.UnsupportedImage, Err: errors.New("zst: the stream needs a dictionary that is not in it")}
	case window > uint64(z.memory):
		return nil, task.Errorf(task.UnsupportedImage, "zst: the stream needs a window of %d MiB and "+
			"the limit is %d MiB; compress it again without --long and --ultra", window>>20, z.memory>>20)
	}
	z.in.take(h.HeaderSize)
	code, window := windowCode(window)
	f := &zframe{in: z.in, head: append(append([]byte{}, zstdMagic...), 0, code), window: int(window), size: h.FrameContentSize, sized: h.HasFCS}
	if h.HasCheckSum {
		f.sum = xxhash.New()
	}
	return f, nil
}

// windowCode returns how a header says the smallest window that is not smaller, and how large that is.
func windowCode(least uint64) (code byte, window uint64) {
	for {
		base := uint64(1) << (10 + code>>3)
		window = base + base/8*uint64(code&7)
		if window >= least {
			return code, window
		}
		code++
	}
}

// Read implements io.Reader.
func (f *zframe) Read(p []byte) (int, error) {
	if len(p) == 0 || f.err != nil {
		return 0, f.err
	}
	if len(f.head) > 0 {
		n := copy(p, f.head)
		f.head = f.head[n:]
		return n, nil
	}
	if f.left == 0 {
		if f.last {
			return 0, io.EOF
		}
		if f.err = f.in.truncated(Zstd, f.block()); f.err != nil {
			return 0, f.err
		}
	}
	n, err := f.in.Read(p[:min(len(p), f.left)])
	f.left -= n
	f.err = f.in.truncated(Zstd, err)
	return n, f.err
}

// zblock is the three-byte header of a block.
type zblock uint32

func (b zblock) last() bool   { return b&1 == 1 }
func (b zblock) repeat() bool { return b>>1&3 == 1 } // one byte, as often as size says
func (b zblock) size() int    { return int(b >> 3) }

func (f *zframe) peek() (zblock, error) {
	err := f.in.need(3)
	if err != nil {
		return 0, err
	}
	b := zblock(f.in.rest[0]) | zblock(f.in.rest[1])<<8 | zblock(f.in.rest[2])<<16
	if b.repeat() {
		err = f.in.need(4)
	}
	return b, err
}

// block finds out how long the next block with its header is.
func (f *zframe) block() error {
	b, err := f.peek()
	if err != nil {
		return err
	}
	f.last, f.left = b.last(), 3+b.size()
	if !b.repeat() {
		f.zeroes = 0
		return nil
	}
	f.left = 3 + 1
	if f.in.rest[3] == 0 {
		f.zeroes = min(f.zeroes+b.size(), f.window)
	} else {
		f.zeroes = 0
	}
	return nil
}

// mostOfBlock is the largest decoded size of a block.
const mostOfBlock = 128 << 10

// hole returns the zeroes of a block that the decoder can skip: its whole window is zeroes already, and a block of zeroes changes
// no other state. Output that it still has to return is of the block before, and zeroes as well. It gets the last block, to know
// that it is the last.
func (f *zframe) hole(p []byte) int {
	if f.skipped == 0 && len(f.head) == 0 && f.left == 0 && !f.last && f.zeroes == f.window {
		b, err := f.peek()
		if err != nil || b.last() || !b.repeat() || f.in.rest[3] != 0 || b.size() > mostOfBlock {
			return 0 // the decoder's, also to say what is wrong
		}
		f.in.take(4)
		f.skipped = b.size()
	}
	n := min(f.skipped, len(p))
	clear(p[:n])
	f.skipped -= n
	return n
}

// made looks at what the frame was decoded to.
func (f *zframe) made(p []byte) error {
	f.out += uint64(len(p))
	if f.sum != nil {
		_, _ = f.sum.Write(p)
	}
	if f.sized && f.out > f.size {
		return bad(Zstd, f.in.off, "a frame of %d bytes has more", f.size)
	}
	return nil
}

// end compares what was decoded with what the frame says of it.
func (f *zframe) end() error {
	if f.sized && f.out != f.size {
		return bad(Zstd, f.in.off, "a frame of %d bytes has only %d", f.size, f.out)
	}
	if f.sum == nil {
		return nil
	}
	if err := f.in.need(4); err != nil {
		return f.in.truncated(Zstd, err)
	}
	if binary.LittleEndian.Uint32(f.in.rest) != uint32(f.sum.Sum64()) {
		return bad(Zstd, f.in.off, "a frame's checksum does not match")
	}
	f.in.take(4)
	return nil
}
