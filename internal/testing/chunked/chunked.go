// Package chunked makes layers with a table of contents, as the tools for zstd:chunked and eStargz do, honest ones and others.
package chunked

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/transfer/decode"
)

// Entry is one of a table.
type Entry struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Size        int64  `json:"size,omitempty"`
	Digest      string `json:"digest,omitempty"`
	Offset      int64  `json:"offset,omitempty"`
	EndOffset   int64  `json:"endOffset,omitempty"`
	ChunkOffset int64  `json:"chunkOffset,omitempty"`
	ChunkSize   int64  `json:"chunkSize,omitempty"`
	ChunkDigest string `json:"chunkDigest,omitempty"`
	ChunkType   string `json:"chunkType,omitempty"`
}

// Name is the name of the file in a layer.
const Name = "disk/disk.img"

// Layer is one with a single file, and what its manifest says of it.
type Layer struct {
	Kind        decode.Kind
	Data        []byte
	Plain       []byte // decompressed
	Offset      int64  // of the file in Plain
	Annotations map[string]string
}

// Lies are the errors in a table.
type Lies struct {
	Entries func([]Entry) []Entry // changes what the table says
	// From is the first part for which the table names other bytes, with their right digests, which no decoder of the whole layer comes by; 0: none.
	// It is for zstd.
	From int
	Text func([]byte) []byte // changes the table when its digest was made
}

// New makes a layer whose file is stored in parts. A part of zeroes is told as such where the kind knows that.
func New(t testing.TB, kind decode.Kind, content []byte, part int, lies Lies) Layer {
	t.Helper()
	head, tail := archive(t, content)
	l := Layer{Kind: kind, Offset: int64(len(head)), Plain: append(append(bytes.Clone(head), content...), tail...)}
	l.Data = compress(t, kind, head)
	entries := []Entry{{Type: "dir", Name: "disk/"}}
	var parts [][]byte
	for at := 0; at < len(content); at += part {
		b := content[at:min(at+part, len(content))]
		e := Entry{Type: "chunk", Name: Name, Offset: int64(len(l.Data)), ChunkOffset: int64(at), ChunkSize: int64(len(b)), ChunkDigest: digest(b)}
		if at == 0 {
			e.Type, e.Size, e.Digest = "reg", int64(len(content)), digest(content)
		}
		if kind == decode.Zstd && len(bytes.Trim(b, "\x00")) == 0 {
			e.ChunkType, e.ChunkDigest = "zeros", ""
		}
		entries, parts = append(entries, e), append(parts, b)
		l.Data = append(l.Data, compress(t, kind, b)...)
	}
	if kind == decode.Zstd {
		entries[1].EndOffset = int64(len(l.Data))
	}
	l.Data = append(l.Data, compress(t, kind, tail)...)
	if kind == decode.Gzip {
		l.gzipTable(t, entries, lies)
		return l
	}
	if lies.From > 0 {
		l.hide(t, entries[1:], parts, lies.From)
	}
	l.zstdTable(t, entries, lies)
	return l
}

// hide has the table name other parts, which are in frames that decoders skip.
func (l *Layer) hide(t testing.TB, entries []Entry, parts [][]byte, from int) {
	for n := from; n < len(parts); n++ {
		other := bytes.Clone(parts[n])
		other[0], other[len(other)-1] = ^other[0], ^other[len(other)-1]
		frame := compress(t, l.Kind, other)
		l.skipped(len(frame))
		entries[n].Offset, entries[n].ChunkDigest, entries[n].ChunkType = int64(len(l.Data)), digest(other), ""
		l.Data = append(l.Data, frame...)
	}
	entries[0].EndOffset = int64(len(l.Data))
}

// skipped begins a frame that decoders skip.
func (l *Layer) skipped(n int) {
	l.Data = append(l.Data, 0x50, 0x2a, 0x4d, 0x18)
	l.Data = binary.LittleEndian.AppendUint32(l.Data, uint32(n))
}

func text(t testing.TB, entries []Entry, lies Lies) []byte {
	t.Helper()
	if lies.Entries != nil {
		entries = lies.Entries(entries)
	}
	b, err := json.Marshal(map[string]any{"version": 1, "entries": entries, "more": []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (l *Layer) zstdTable(t testing.TB, entries []Entry, lies Lies) {
	plain := text(t, entries, lies)
	table := compress(t, decode.Zstd, plain)
	l.skipped(len(table))
	l.Annotations = map[string]string{
		"io.github.containers.zstd-chunked.manifest-position": fmt.Sprintf("%d:%d:%d:1", len(l.Data), len(table), len(plain)),
		"io.github.containers.zstd-chunked.manifest-checksum": digest(table),
	}
	if lies.Text != nil {
		table = lies.Text(table)
	}
	l.Data = append(l.Data, table...)
}

// gzipTable: the table is a file of the layer's archive, its last one.
func (l *Layer) gzipTable(t testing.TB, entries []Entry, lies Lies) {
	plain := text(t, entries, lies)
	l.Annotations = map[string]string{"containerd.io/snapshot/stargz/toc.digest": digest(plain)}
	if lies.Text != nil {
		plain = lies.Text(plain)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put(t, w, "stargz.index.json", plain)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	at := len(l.Data)
	l.Data = append(l.Data, compress(t, decode.Gzip, b.Bytes())...)
	l.Plain = append(l.Plain, b.Bytes()...)
	var f bytes.Buffer
	g, err := gzip.NewWriterLevel(&f, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	g.Extra = append([]byte("SG\x16\x00"), fmt.Sprintf("%016xSTARGZ", at)...)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	l.Data = append(l.Data, f.Bytes()...)
}

// archive returns what is before and behind the file.
func archive(t testing.TB, content []byte) (head, tail []byte) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "disk/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	put(t, w, Name, content)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	put(t, w, "etc/x", []byte("x")) // something is behind the file
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b.Bytes(), content)
	return b.Bytes()[:at], b.Bytes()[at+len(content):]
}

func put(t testing.TB, w *tar.Writer, name string, content []byte) {
	t.Helper()
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func compress(t testing.TB, kind decode.Kind, b []byte) []byte {
	t.Helper()
	if kind == decode.Zstd {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(b, nil)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
