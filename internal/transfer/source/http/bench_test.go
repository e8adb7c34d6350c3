package http

import (
	"io"
	nethttp "net/http"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// BenchmarkRead reads 256 MiB from a server in this process, beside a plain GET of the same.
func BenchmarkRead(b *testing.B) {
	content := sourcetest.Content(1, 256<<20)
	s := serve(b, file(content)).URL
	b.Run("get", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			resp, err := nethttp.Get(s) //nolint:noctx // the server is in this process
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 1<<20)
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
	})
	b.Run("ahead", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			blob, err := Open(b.Context(), task.HTTP{URL: s})
			if err != nil {
				b.Fatal(err)
			}
			a, err := source.NewAhead(b.Context(), blob, 0, source.AheadOptions{})
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			for err == nil {
				var p []byte
				p, err = a.Next()
				n += len(p)
			}
			if n != len(content) {
				b.Fatalf("%d bytes, %v", n, err)
			}
			a.Close()
			blob.Close()
		}
	})
}
