// Package pattern is the data that tests and the test guest agree on: an endless stream of bytes that a seed names, so that a
// test can say "write seed 7" on one side and know every byte, and its sha256, on the other without sending any of them.
//
// It knows nothing of disks, consoles or files. It is not random enough for anything but tests.
package pattern

import "encoding/binary"

// Stream is the endless byte stream of one seed. It is its own io.ReaderAt, never fails and is never at an end; bound it with
// io.NewSectionReader.
type Stream uint64

// golden is 2^64 divided by the golden ratio: the step of the SplitMix64 generator, whose n-th output needs no others before it.
const golden = 0x9e3779b97f4a7c15

// ReadAt fills p with the bytes of the stream from off on.
func (s Stream) ReadAt(p []byte, off int64) (int, error) {
	word := uint64(off) / 8
	skip := int(uint64(off) % 8)
	var b [8]byte
	for n := 0; n < len(p); word++ {
		binary.LittleEndian.PutUint64(b[:], s.word(word))
		n += copy(p[n:], b[skip:])
		skip = 0
	}
	return len(p), nil
}

func (s Stream) word(n uint64) uint64 {
	z := uint64(s) + (n+1)*golden
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
