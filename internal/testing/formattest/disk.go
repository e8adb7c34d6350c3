// Package formattest is the suite every image format runs, and the plainest engine there can be to run it with: a disk
// in memory. It is for tests; the real engine is package transfer.
package formattest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

const (
	chunk = 64 << 10
	// MaxData is how many non-zero bytes a Disk holds.
	MaxData = 512 << 20
)

// ErrFull is the error of a Disk that holds MaxData.
var ErrFull = errors.New("the test's disk is full")

// Disk is a sparse disk in memory.
type Disk struct {
	Size   int64 // -1 lets it grow
	grown  int64
	chunks map[int64][]byte
}

// NewDisk makes a disk of zeroes.
func NewDisk(size int64) *Disk { return &Disk{Size: size, chunks: map[int64][]byte{}} }

// ReadDisk reads a raw disk from a file that may be sparse.
func ReadDisk(r io.ReaderAt, size int64, data func(from int64) (start, end int64)) (*Disk, error) {
	d := NewDisk(size)
	for at := int64(0); at < size; {
		start, end := data(at)
		for at = start; at < min(end, size); {
			p := make([]byte, min(chunk, min(end, size)-at))
			if _, err := r.ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			if err := d.Write(p, at); err != nil {
				return nil, err
			}
			at += int64(len(p))
		}
	}
	return d, nil
}

// Write puts p at off.
func (d *Disk) Write(p []byte, off int64) error {
	end := off + int64(len(p))
	if off < 0 || end < off || d.Size >= 0 && end > d.Size {
		return fmt.Errorf("%d bytes at %d lie outside the disk of %d bytes", len(p), off, d.Size)
	}
	d.grown = max(d.grown, end)
	for len(p) > 0 {
		i, in := off/chunk, off%chunk
		n := min(chunk-in, int64(len(p)))
		c := d.chunks[i]
		if c == nil && !zero(p[:n]) {
			if len(d.chunks) >= MaxData/chunk {
				return ErrFull
			}
			c = make([]byte, chunk)
			d.chunks[i] = c
		}
		if c != nil {
			copy(c[in:], p[:n])
		}
		p, off = p[n:], off+n
	}
	return nil
}

// Diff returns the first difference of two disks, or "".
func (d *Disk) Diff(o *Disk) string {
	if a, b := d.size(), o.size(); a != b {
		return fmt.Sprintf("one disk has %d bytes, the other %d", a, b)
	}
	empty := make([]byte, chunk)
	first := int64(-1)
	check := func(i int64) {
		a, b := d.chunks[i], o.chunks[i]
		if a == nil {
			a = empty
		}
		if b == nil {
			b = empty
		}
		if bytes.Equal(a, b) {
			return
		}
		for j := range a {
			if at := i*chunk + int64(j); a[j] != b[j] && (first < 0 || at < first) {
				first = at
				return
			}
		}
	}
	for i := range d.chunks {
		check(i)
	}
	for i := range o.chunks {
		check(i)
	}
	if first < 0 {
		return ""
	}
	return fmt.Sprintf("the disks differ from byte %d on", first)
}

// Sum returns the SHA-256 of the whole disk.
func (d *Disk) Sum() string {
	h := sha256.New()
	for at := int64(0); at < d.size(); at += chunk {
		c := d.chunks[at/chunk]
		if c == nil {
			c = zeroes[:]
		}
		h.Write(c[:min(chunk, d.size()-at)])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Data returns how many bytes it holds in chunks that are not zero.
func (d *Disk) Data() int64 { return int64(len(d.chunks)) * chunk }

// cut gives a disk that grew its size.
func (d *Disk) cut(size int64) {
	for i, c := range d.chunks {
		if over := (i+1)*chunk - size; over > 0 {
			clear(c[max(chunk-over, 0):])
		}
	}
	d.Size = size
}

func (d *Disk) size() int64 {
	if d.Size < 0 {
		return d.grown
	}
	return d.Size
}

func zero(p []byte) bool {
	for len(p) >= chunk {
		if !bytes.Equal(p[:chunk], zeroes[:]) {
			return false
		}
		p = p[chunk:]
	}
	return bytes.Equal(p, zeroes[:len(p)])
}

var zeroes [chunk]byte
