// Package disktest makes disks, and the files, archives and container images that they come in, for tests of the data plane. The same
// seed gives the same bytes.
package disktest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Noise returns a disk with data and holes.
func Noise(n int, seed uint64) []byte {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test that fails must fail again
	for at := 0; at < n; {
		run := min(1+rng.IntN(700_000), n-at)
		if rng.IntN(3) > 0 {
			Fill(p[at:at+run], rng.Uint64)
		}
		at += run
	}
	return p
}

// Fill writes words, which is much faster than bytes.
func Fill(p []byte, word func() uint64) {
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, word())
	}
	for i := range p {
		p[i] = byte(word())
	}
}

// Text returns a disk whose content compresses to about a third.
func Text(n int, seed uint64) []byte {
	p := Noise(n, seed)
	for q := p; len(q) >= 8; q = q[8:] {
		if w := binary.LittleEndian.Uint64(q); w != 0 {
			binary.LittleEndian.PutUint64(q, w&0x0707070707070707+0x6161616161616161)
		}
	}
	return p
}

// Gzip packs in a hurry: the race detector looks on, and how well a fixture is packed tests nothing.
func Gzip(t testing.TB, p []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(p)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Zstd packs in one frame.
func Zstd(t testing.TB, p []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(p, nil)
}
