package decode

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// filterLZMA2 is the one filter that is supported. The others improve the compression of machine code of one architecture; they
// are of no use for disks.
const filterLZMA2 = 0x21

// blockHeader is the header of a block. A missing size is -1.
type blockHeader struct {
	dict             int
	packed, unpacked int64
}

// agrees checks the sizes a header promised.
func (h blockHeader) agrees(packed, unpacked int64, f *frames) error {
	if h.packed >= 0 && h.packed != packed {
		return f.bad("a block has %d bytes and says %d", packed, h.packed)
	}
	if h.unpacked >= 0 && h.unpacked != unpacked {
		return f.bad("a block decodes to %d bytes and says %d", unpacked, h.unpacked)
	}
	return nil
}

// varint takes a number of at most 63 bits off p, which is all that xz allows, in its shortest form.
func varint(p []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(p)
	if n <= 0 || n > 9 || n > 1 && v>>(7*(n-1)) == 0 {
		return 0, nil, errVarint
	}
	return v, p[n:], nil
}

var errVarint = errors.New("a number that is none")

func (f *frames) blockHeader(p []byte) (blockHeader, error) {
	h := blockHeader{packed: -1, unpacked: -1}
	flags, p := p[0], p[1:]
	if flags&0x3c != 0 {
		return h, f.unsupported("a block has unknown flags %#02x", flags)
	}
	var err error
	if p, err = size(p, flags&0x40 != 0, &h.packed); err != nil {
		return h, f.bad("a block's packed size: %w", err)
	}
	if p, err = size(p, flags&0x80 != 0, &h.unpacked); err != nil {
		return h, f.bad("a block's size: %w", err)
	}
	filter, p, err := varint(p)
	if err != nil {
		return h, f.bad("a block's filter: %w", err)
	}
	if flags&3 != 0 || filter != filterLZMA2 {
		return h, f.unsupported("a block uses filter %#x and %d more; compress it again with LZMA2 alone, "+
			"which is what xz does when not told otherwise", filter, flags&3)
	}
	if len(p) < 2 || p[0] != 1 || p[1] > 40 {
		return h, f.bad("a block's dictionary size makes no sense")
	}
	dict := int64(2|p[1]&1) << (p[1]/2 + 11)
	if dict > f.memory {
		return h, f.unsupported("the stream needs a dictionary of %d MiB and the limit is %d MiB; "+
			"compress it again with xz -9 or less", dict>>20, f.memory>>20)
	}
	h.dict = int(dict)
	for _, z := range p[2:] {
		if z != 0 {
			return h, f.bad("a block header's padding is not zero")
		}
	}
	return h, nil
}

// size takes a size off p if there is one.
func size(p []byte, there bool, to *int64) ([]byte, error) {
	if !there {
		return p, nil
	}
	v, p, err := varint(p)
	*to = int64(v)
	return p, err
}

// record notes what the index must say of a block.
func (f *frames) record(unpadded, unpacked uint64) {
	var p [16]byte
	binary.LittleEndian.PutUint64(p[:], unpadded)
	binary.LittleEndian.PutUint64(p[8:], unpacked)
	f.records.Write(p[:])
}

// index reads a stream's index and footer and compares them with what was seen.
func (f *frames) index() error {
	r := indexReader{f: f, begin: f.in.off}
	r.byte() // the zero it was known by
	if n := r.varint(); r.err == nil && n != f.count {
		return f.bad("the index has %d blocks, the stream %d", n, f.count)
	}
	want := f.records.Sum(nil)
	f.records = sha256.New()
	for i := uint64(0); i < f.count && r.err == nil; i++ {
		unpadded := r.varint()
		f.record(unpadded, r.varint())
	}
	for (f.in.off-r.begin)&3 != 0 && r.err == nil {
		if r.byte() != 0 {
			return f.bad("the index's padding is not zero")
		}
	}
	if r.err != nil {
		return r.err
	}
	if string(f.records.Sum(nil)) != string(want) {
		return f.bad("the index does not agree with the blocks")
	}
	size := f.in.off - r.begin + 4
	p, err := f.read(4 + 12)
	if err != nil {
		return err
	}
	foot := p[4:]
	switch {
	case binary.LittleEndian.Uint32(p) != r.crc:
		return f.bad("the index's checksum does not match")
	case foot[10] != 'Y' || foot[11] != 'Z' || binary.LittleEndian.Uint32(foot) != crc32.ChecksumIEEE(foot[4:10]):
		return f.bad("the stream's footer is damaged")
	case int64(binary.LittleEndian.Uint32(foot[4:])+1)*4 != size || foot[8] != 0 || check(foot[9]) != f.check:
		return f.bad("the stream's footer does not agree with its header and index")
	}
	f.inBlocks = false
	return nil
}

// indexReader reads an index, which may be larger than the memory.
type indexReader struct {
	f     *frames
	begin int64
	crc   uint32
	err   error
}

func (r *indexReader) byte() byte {
	if r.err != nil {
		return 0
	}
	var b byte
	b, r.err = r.f.in.byte()
	r.crc = crc32.Update(r.crc, crc32.IEEETable, []byte{b})
	return b
}

func (r *indexReader) varint() uint64 {
	var p [10]byte
	n := 0
	for n < 9 {
		p[n] = r.byte()
		n++
		if r.err != nil {
			return 0
		}
		if p[n-1] < 0x80 {
			break
		}
	}
	v, _, err := varint(p[:n])
	if err != nil {
		r.err = r.f.bad("the index: %w", err)
	}
	return v
}

// The Data of an xz state: a version, the stream's checksum type, the number of blocks so far and the state of the hash over their
// entries in the index. A state is always at the beginning of a block.
const (
	xzStateVersion = 1
	xzStateHeader  = 10
)

// save makes a state for the beginning of the block whose header was just read.
func (f *frames) save(begin int64) *State {
	sum, err := f.records.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil
	}
	data := append(make([]byte, 0, xzStateHeader+len(sum)), xzStateVersion, byte(f.check))
	data = binary.LittleEndian.AppendUint64(data, f.count)
	return &State{Kind: Xz, In: begin, Out: f.out, Data: append(data, sum...)}
}

var errXzState = errors.New("resume an xz stream: the state is not one this version made")

// restore makes it stand where a state was made.
func (f *frames) restore(s *State) error {
	if len(s.Data) < xzStateHeader || s.Data[0] != xzStateVersion || check(s.Data[1]).size() < 0 || s.In < 0 || s.Out < 0 {
		return errXzState
	}
	f.records = sha256.New()
	if err := f.records.(encoding.BinaryUnmarshaler).UnmarshalBinary(s.Data[xzStateHeader:]); err != nil {
		return errXzState
	}
	f.check, f.count = check(s.Data[1]), binary.LittleEndian.Uint64(s.Data[2:])
	f.out, f.inBlocks = s.Out, true
	return nil
}
