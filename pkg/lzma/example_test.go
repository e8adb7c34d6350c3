package lzma_test

import (
	"fmt"
	"log"

	"github.com/berth-vm/berth/pkg/lzma"
)

// pages keeps all of the output, where a program would write a page out as soon as it is released.
type pages [][]byte

func (p *pages) Page() ([]byte, error) {
	*p = append(*p, make([]byte, lzma.PageSize))
	return (*p)[len(*p)-1], nil
}

func (*pages) Release([]byte) {}

// A stream of one chunk, which is stored as it is.
func ExampleDecoder() {
	stream := []byte("\x01\x00\x04hello\x00")
	var d lzma.Decoder
	var out pages
	d.Reset(1<<20, 0)
	for {
		n, err := lzma.HeaderSize(stream[0])
		if err != nil {
			log.Fatal(err)
		}
		h := lzma.ParseHeader(stream[:n])
		if h.Control == 0 {
			break
		}
		if err := d.Chunk(h, stream[n:n+h.Packed], &out); err != nil {
			log.Fatal(err)
		}
		stream = stream[n+h.Packed:]
	}
	fmt.Printf("%s\n", out[0][:d.At()])
	d.Finish(&out)
	// Output: hello
}
