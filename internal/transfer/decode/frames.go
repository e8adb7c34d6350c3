package decode

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/pkg/lzma"
)

// frames reads an xz file's frames: streams of blocks of LZMA2 chunks. Chunks say how long they are, packed and unpacked,
// so it finds where blocks end and how much they decode to without decoding them, whether or not their headers say so.
type frames struct {
	in     *input
	memory int64
	stop   chan struct{}
	order  chan<- *xzBlock
	jobs   chan<- *xzBlock
	free   chan []byte

	inBlocks bool // a stream's header was read and its index not yet
	check    check
	out      int64     // decoded bytes before the block at hand
	count    uint64    // of blocks in this stream
	records  hash.Hash // over what the index has to say of them
}

// run reads the whole file. The error that ends it is delivered after all blocks.
func (f *frames) run() {
	err := f.file()
	select {
	case f.order <- &xzBlock{err: err}:
	case <-f.stop:
	}
}

// file is io.EOF at the file's end.
func (f *frames) file() error {
	for {
		if !f.inBlocks {
			if err := f.streamHeader(); err != nil {
				return f.in.truncated(Xz, err)
			}
		}
		for f.inBlocks {
			if err := f.block(); err != nil {
				return f.in.truncated(Xz, err)
			}
		}
		if err := f.padding(); err != nil {
			return err
		}
	}
}

// read takes n bytes, which stay valid until the next.
func (f *frames) read(n int) ([]byte, error) {
	if err := f.in.need(n); err != nil {
		return nil, err
	}
	p := f.in.rest[:n]
	f.in.take(n)
	return p, nil
}

func (f *frames) bad(format string, args ...any) error { return bad(Xz, f.in.off, format, args...) }

func (f *frames) unsupported(format string, args ...any) error {
	return task.Errorf(task.UnsupportedImage, "xz: "+format, args...)
}

func (f *frames) streamHeader() error {
	p, err := f.read(12)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(p, xzMagic) {
		return f.bad("no xz stream where one has to be but % x", p[:6])
	}
	if crc32.ChecksumIEEE(p[6:8]) != binary.LittleEndian.Uint32(p[8:]) {
		return f.bad("the stream header's checksum does not match")
	}
	f.check = check(p[7])
	if p[6] != 0 || f.check.size() < 0 {
		return f.unsupported("checksum type %#02x%02x is not one of none, crc32, crc64, sha256", p[6], p[7])
	}
	f.inBlocks, f.count, f.records = true, 0, sha256.New()
	return nil
}

// padding skips the zeroes behind a stream. It returns io.EOF if nothing follows them.
func (f *frames) padding() error {
	for {
		err := f.in.need(4)
		if errors.Is(err, io.EOF) && len(f.in.rest) > 0 {
			return f.bad("%d bytes behind the last stream", len(f.in.rest))
		}
		if err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(f.in.rest) != 0 {
			return nil
		}
		f.in.take(4)
	}
}

// block reads one block, or the index that comes after the last.
func (f *frames) block() error {
	begin := f.in.off
	if err := f.in.need(1); err != nil {
		return err
	}
	if f.in.rest[0] == 0 {
		return f.index()
	}
	size := (int(f.in.rest[0]) + 1) * 4
	p, err := f.read(size)
	if err != nil {
		return err
	}
	if crc32.ChecksumIEEE(p[:size-4]) != binary.LittleEndian.Uint32(p[size-4:]) {
		return f.bad("the block header's checksum does not match")
	}
	h, err := f.blockHeader(p[1 : size-4])
	if err != nil {
		return err
	}
	b := &xzBlock{
		dict: h.dict, at: f.out, check: f.check, state: f.save(begin),
		packets: make(chan packet, cap(f.free)+1), out: make(chan chunk, queue),
	}
	for _, c := range []chan<- *xzBlock{f.order, f.jobs} {
		select {
		case c <- b:
		case <-f.stop:
			return errClosed
		}
	}
	defer close(b.packets)
	packed, unpacked, err := f.packets(b)
	if err == nil {
		err = h.agrees(packed, unpacked, f)
	}
	if err == nil {
		err = f.blockEnd(b, packed)
	}
	if err != nil {
		b.packets <- packet{err: f.in.truncated(Xz, err)}
		return err
	}
	f.count++
	f.record(uint64(size)+uint64(packed)+uint64(f.check.size()), uint64(unpacked))
	f.out += unpacked
	return nil
}

// blockEnd reads what is behind a block's data: zeroes up to a multiple of 4, and the checksum.
func (f *frames) blockEnd(b *xzBlock, packed int64) error {
	p, err := f.read(int(-packed & 3))
	if err != nil {
		return err
	}
	for _, z := range p {
		if z != 0 {
			return f.bad("a block's padding is not zero")
		}
	}
	p, err = f.read(f.check.size())
	if err != nil {
		return err
	}
	b.sum, b.end = bytes.Clone(p), f.in.off
	return nil
}

// packets reads a block's chunks and passes them on. It says how many bytes they were, packed and unpacked.
func (f *frames) packets(b *xzBlock) (packed, unpacked int64, err error) {
	begin := f.in.off
	for {
		if err := f.in.need(1); err != nil {
			return 0, 0, err
		}
		n, err := lzma.HeaderSize(f.in.rest[0])
		if err != nil {
			return 0, 0, f.bad("%w", err)
		}
		p := packet{off: f.in.off}
		head, err := f.read(n)
		if err != nil {
			return 0, 0, err
		}
		p.Header = lzma.ParseHeader(head)
		if p.Control == 0 {
			return f.in.off - begin, unpacked, nil
		}
		select {
		case p.data = <-f.free:
		case <-f.stop:
			return 0, 0, errClosed
		}
		if p.data == nil {
			p.data = make([]byte, 0, lzma.MaxPacked)
		}
		p.data = p.data[:p.Packed]
		if _, err := io.ReadFull(f.in, p.data); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) && f.in.err == nil {
				err = io.EOF
			}
			return 0, 0, err
		}
		unpacked += int64(p.Unpacked)
		b.packets <- p // never waits: there is room for all there are
	}
}
