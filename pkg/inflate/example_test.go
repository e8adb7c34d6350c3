package inflate_test

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"fmt"
	"log"

	"github.com/berth-vm/berth/pkg/inflate"
)

// A cluster of a disk image: its size is known before it is decoded.
func ExampleDecoder_Zlib() {
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, _ = w.Write(bytes.Repeat([]byte("cluster "), 8192))
	_ = w.Close()

	cluster := make([]byte, 64<<10)
	var d inflate.Decoder // keep it: it is large, and ready for the next cluster
	n, used, err := d.Zlib(cluster, packed.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, used == packed.Len(), string(cluster[:7]))
	// Output: 65536 true cluster
}

// A stream whose output is taken in pieces: what was written before stays in front of what comes, because matches reach back to it.
func ExampleDecoder_Decode() {
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()

	const history = 32 << 10
	buf := make([]byte, 256<<10)
	var d inflate.Decoder
	var at, from, total int
	src := packed.Bytes()
	for {
		n, used, status, err := d.Decode(buf, at, src, true)
		if err != nil {
			log.Fatal(err)
		}
		src, total = src[used:], total+n-from // buf[from:n] is new
		at, from = n, n
		if status == inflate.Done {
			break
		}
		if status == inflate.NeedOutput {
			at = copy(buf, buf[n-history:n])
			from = at
		}
	}
	fmt.Println(total)
	// Output: 1048576
}
