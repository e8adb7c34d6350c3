package decode

import (
	"bytes"
	stdgzip "compress/gzip"
	"io"
	"os"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// BenchmarkDecoders holds our decoders against the libraries that could stand in their place, on a disk that holds this
// program and a hole. docs/decisions/0008 has what came out.
func BenchmarkDecoders(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		b.Fatal(err)
	}
	disk := append(program, make([]byte, 7*len(program))...) // as full as the disks of make bench
	for _, c := range []struct {
		name string
		kind Kind
		make func(io.Writer) io.WriteCloser
		open map[string]func(io.Reader) (io.Reader, error)
	}{
		{"gz", Gzip, func(w io.Writer) io.WriteCloser { return stdgzip.NewWriter(w) }, map[string]func(io.Reader) (io.Reader, error){
			"standard library": func(r io.Reader) (io.Reader, error) { return stdgzip.NewReader(r) },
			"klauspost":        func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		}},
		{"zst", Zstd, func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z }, map[string]func(io.Reader) (io.Reader, error){
			"klauspost": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		}},
	} {
		var packed bytes.Buffer
		w := c.make(&packed)
		_, err := w.Write(disk)
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
		c.open["ours"] = func(r io.Reader) (io.Reader, error) { return NewReader(c.kind, r, Options{}) }
		for who, open := range c.open {
			b.Run(c.name+"/"+who, func(b *testing.B) { decodeAll(b, packed.Bytes(), int64(len(disk)), open) })
		}
	}
}

func decodeAll(b *testing.B, packed []byte, size int64, open func(io.Reader) (io.Reader, error)) {
	b.SetBytes(size)
	for b.Loop() {
		r, err := open(bytes.NewReader(packed))
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != size {
			b.Fatalf("%d of %d bytes, %v", n, size, err)
		}
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
		}
	}
}
