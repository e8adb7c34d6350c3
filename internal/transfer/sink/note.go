package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
)

// A note is kept as magic, generation, length, the note and a SHA-256 of all of that, so that whatever else lies in its
// place, or half of one, is not taken for it.
var noteMagic = []byte("berth note 1\n\x00\x00\x00")

const (
	noteHead = 16 + 8 + 8
	// noteMax bounds a note. Most have some hundred bytes, those of compressed streams 50 KiB, and one of a badly
	// fragmented image in a stream 2 MiB.
	noteMax = 4 << 20
)

func seal(note []byte, generation uint64) []byte {
	b := append([]byte(nil), noteMagic...)
	b = binary.BigEndian.AppendUint64(b, generation)
	b = binary.BigEndian.AppendUint64(b, uint64(len(note)))
	b = append(b, note...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// unseal reads a note; nil without an error if there is none that is whole.
func unseal(r io.Reader) ([]byte, error) {
	note, _, err := unsealGeneration(r)
	return note, err
}

func unsealGeneration(r io.Reader) ([]byte, uint64, error) {
	b, err := io.ReadAll(io.LimitReader(r, noteHead+noteMax+sha256.Size))
	if err != nil {
		return nil, 0, Failed(fmt.Errorf("read the checkpoint: %w", err))
	}
	n := len(b)
	if n < noteHead || !bytes.HasPrefix(b, noteMagic) {
		return nil, 0, nil
	}
	generation, size := binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])
	if size > noteMax || int(size) > n-noteHead-sha256.Size {
		return nil, 0, nil
	}
	end := noteHead + int(size)
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:end+sha256.Size]) {
		return nil, 0, nil
	}
	return b[noteHead:end], generation, nil
}
