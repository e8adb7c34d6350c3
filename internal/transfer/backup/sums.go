package backup

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// An image has a sum for each piece of it, so that any part can be trusted when it is read, and so that what was written before a crash
// is known. A piece is larger in a larger file, so that the sums stay small.
const (
	minPiece = 64 << 10
	maxPiece = 8 << 20
	sumSize  = 32
	lineSize = 2*sumSize + 1
	// maxSums bounds the sums of a chain that are in memory: those of 1 TiB in pieces of 1 MiB, of 8 TiB in pieces of 8 MiB.
	maxSums = 32 << 20
)

// pieceOf is the size of the pieces of a file of so many bytes: 1 MiB up to 256 GiB.
func pieceOf(size int64) int64 {
	piece := int64(1 << 20)
	for piece < maxPiece && size/piece > 256<<10 {
		piece *= 2
	}
	return piece
}

// pieces is how many pieces a file has.
func (d *Disk) pieces() int64 { return (d.Bytes + d.Piece - 1) / d.Piece }

// parseSums reads the sums of a disk's image.
func parseSums(d Disk, text []byte) ([][sumSize]byte, error) {
	if digest(text) != d.Digest {
		return nil, task.Errorf(task.ChecksumMismatch, "%s is not the file that the manifest speaks of: its digest is %s, not %s", d.Sums, digest(text), d.Digest)
	}
	sums := make([][sumSize]byte, 0, d.pieces())
	for line := range bytes.Lines(text) {
		var sum [sumSize]byte
		if len(line) != lineSize || line[lineSize-1] != '\n' {
			return nil, task.Errorf(task.BadImage, "line %d of %s is no sum", len(sums)+1, d.Sums)
		}
		if _, err := hex.Decode(sum[:], line[:lineSize-1]); err != nil {
			return nil, task.Errorf(task.BadImage, "line %d of %s is no sum", len(sums)+1, d.Sums)
		}
		sums = append(sums, sum)
	}
	if int64(len(sums)) != d.pieces() {
		return nil, task.Errorf(task.BadImage, "%s has %d sums, an image of %d bytes needs %d", d.Sums, len(sums), d.Bytes, d.pieces())
	}
	return sums, nil
}

// proven is an image whose bytes are handed out only after their sum was compared.
type proven struct {
	source.Blob
	name string
	disk Disk
	sums [][sumSize]byte
}

// Info implements source.Blob. The digest is the best proof that the bytes are the same.
func (p *proven) Info() source.Info {
	info := p.Blob.Info()
	info.Name, info.Version, info.Weak, info.Passing = p.name, p.disk.Digest, "", ""
	return info
}

// Open implements source.Blob.
func (p *proven) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := p.Info().Span(off, n)
	if err != nil {
		return nil, err
	}
	first := off &^ (p.disk.Piece - 1)
	last := min((off+n+p.disk.Piece-1)&^(p.disk.Piece-1), p.disk.Bytes)
	r := &provenReader{p: p, number: first / p.disk.Piece, skip: off - first, left: n}
	if n > 0 {
		r.in, err = p.Blob.Open(ctx, first, last-first)
	}
	return r, err
}

// provenReader reads piece after piece.
type provenReader struct {
	p      *proven
	in     io.ReadCloser // nil: there is nothing to read
	number int64         // of the next piece
	buf    []byte
	have   []byte // of buf, still to be handed out
	skip   int64  // of the next piece
	left   int64  // to be handed out
}

func (r *provenReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if len(r.have) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.have[:min(int64(len(r.have)), r.left)])
	r.have, r.left = r.have[n:], r.left-int64(n)
	return n, nil
}

func (r *provenReader) next() error {
	d := r.p.disk
	at := r.number * d.Piece
	size := min(d.Piece, d.Bytes-at)
	if r.buf == nil {
		r.buf = make([]byte, min(d.Piece, d.Bytes))
	}
	piece := r.buf[:size]
	if _, err := io.ReadFull(r.in, piece); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %s at byte %d: %w", r.p.name, at, err)
	}
	if blake3.Sum256(piece) != r.p.sums[r.number] {
		return task.Errorf(task.ChecksumMismatch, "%s is not the file that was written: its bytes from %d to %d have another sum; "+
			"bring the file back from a copy, or restore an older backup", r.p.name, at, at+size)
	}
	r.have, r.skip = piece[r.skip:], 0
	r.number++
	return nil
}

func (r *provenReader) Close() error {
	if r.in == nil {
		return nil
	}
	return r.in.Close()
}
