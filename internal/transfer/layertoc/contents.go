// Package layertoc reads the tables of contents that layers of the kinds zstd:chunked and eStargz carry: where the parts of a
// file begin in the compressed layer, and the digest of each.
//
// A table is only believed if it has the digest that the image's manifest names, and even then it may be wrong: it is the image
// author's description of the layer, not the layer. So every part that is read by it must be compared with its digest, and in the
// end with the layer. Everything in a table is bounded before it is used.
//
// It does not know disks, caches or registries.
package layertoc

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// What the manifest says of a layer that has a table.
const (
	zstdPosition = "io.github.containers.zstd-chunked.manifest-position" // offset:length:length when decompressed:type
	zstdChecksum = "io.github.containers.zstd-chunked.manifest-checksum" // of the compressed table
	gzipChecksum = "containerd.io/snapshot/stargz/toc.digest"            // of the table itself
)

// Bounds of a table. A part takes 56 bytes of memory; the tools make parts of 64 KiB (zstd:chunked, about) and of 4 MiB (eStargz).
const (
	maxStored = 16 << 20
	maxText   = 64 << 20
	maxParts  = 400_000
	// MaxPart bounds a part that has to be fetched.
	MaxPart = 8 << 20
)

// Part is a part of the file. It ends where the next one begins.
type Part struct {
	At   int64             // where it begins in the file
	From int64             // where it begins in the compressed layer; a decoder begins there again
	To   int64             // where it certainly ends there
	Sum  [sha256.Size]byte // of the part
	Zero bool              // it is nothing but zeroes, and need not be fetched
}

// Table lists the parts of one file, in order and without gaps.
type Table struct {
	Size  int64
	Parts []Part
}

// End returns where a part ends in the file.
func (t *Table) End(i int) int64 {
	if i+1 < len(t.Parts) {
		return t.Parts[i+1].At
	}
	return t.Size
}

// Read reads the entries for a member from the table of a layer that is compressed as kind says. It is nil if the manifest names no table.
func Read(ctx context.Context, layer source.Blob, kind decode.Kind, m *source.Member) (*Table, error) {
	want := &wanted{name: m.Name, size: m.Size, layer: layer.Info().Size}
	switch {
	case kind == decode.Zstd && m.Annotations[zstdPosition] != "" && m.Annotations[zstdChecksum] != "":
		return readZstd(ctx, layer, want, m.Annotations)
	case kind == decode.Gzip && m.Annotations[gzipChecksum] != "":
		return readGzip(ctx, layer, want, m.Annotations[gzipChecksum])
	}
	return nil, nil
}

// readZstd reads the table of a zstd:chunked layer, which lies where the manifest says.
func readZstd(ctx context.Context, layer source.Blob, want *wanted, said map[string]string) (*Table, error) {
	var at [4]int64
	fields := strings.Split(said[zstdPosition], ":")
	if len(fields) != len(at) {
		return nil, fmt.Errorf("the place of the table is %.60q", said[zstdPosition])
	}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 62)
		if err != nil {
			return nil, fmt.Errorf("the place of the table is %.60q", said[zstdPosition])
		}
		at[i] = int64(n)
	}
	if at[3] != 1 {
		return nil, fmt.Errorf("the table is of type %d, and only type 1 is known", at[3])
	}
	stored, err := stretch(ctx, layer, at[0], at[1])
	if err != nil {
		return nil, err
	}
	if err := compare(sha256.Sum256(stored), said[zstdChecksum]); err != nil {
		return nil, err
	}
	r, err := decode.NewReader(decode.Zstd, bytes.NewReader(stored), decode.Options{Limit: maxText})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return want.parse(r)
}

// The end of an eStargz layer is a gzip member without data whose header says where the table begins.
const (
	footerSize = 51
	footerHead = "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x1a\x00SG\x16\x00"
	footerTail = "STARGZ"
	tableName  = "stargz.index.json"
)

// readGzip reads the table of an eStargz layer, which is an archive with one file, behind the layer's own.
func readGzip(ctx context.Context, layer source.Blob, want *wanted, digest string) (*Table, error) {
	end := want.layer - footerSize
	footer, err := stretch(ctx, layer, end, footerSize)
	if err != nil {
		return nil, err
	}
	place, head := footer[len(footerHead):][:16], []byte(footerHead)
	head[9], footer[9] = 0, 0 // the system that it was made on
	if !bytes.HasPrefix(footer, head) || string(footer[len(head)+16:][:len(footerTail)]) != footerTail {
		return nil, errors.New("the layer does not end as one with a table does")
	}
	from, err := strconv.ParseUint(string(place), 16, 62)
	if err != nil {
		return nil, fmt.Errorf("the place of the table is %q", place)
	}
	stored, err := stretch(ctx, layer, int64(from), end-int64(from))
	if err != nil {
		return nil, err
	}
	r, err := decode.NewReader(decode.Gzip, bytes.NewReader(stored), decode.Options{Limit: maxText})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	archive := tar.NewReader(r)
	h, err := archive.Next()
	if err == nil && h.Name != tableName {
		err = fmt.Errorf("there is %.60q", h.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s where the table should be: %w", tableName, err)
	}
	sum := sha256.New()
	t, err := want.parse(io.TeeReader(archive, sum))
	if err != nil {
		return nil, err
	}
	if err := compare([sha256.Size]byte(sum.Sum(nil)), digest); err != nil {
		return nil, err
	}
	return t, nil
}

// stretch returns a bounded part of the layer.
func stretch(ctx context.Context, layer source.Blob, off, n int64) ([]byte, error) {
	if size := layer.Info().Size; n <= 0 || n > maxStored || off < 0 || off > size-n {
		return nil, fmt.Errorf("the table is said to be %d bytes at %d of %d", n, off, size)
	}
	r, err := layer.Open(ctx, off, n)
	if err != nil {
		return nil, err
	}
	defer r.Close() // the bytes are here, or err says why not
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}

// compare: the digest is the one that was named.
func compare(got [sha256.Size]byte, want string) error {
	if s := "sha256:" + hex.EncodeToString(got[:]); s != want {
		return fmt.Errorf("the digest of the table is %s, and the manifest names %.80s", s, want)
	}
	return nil
}
