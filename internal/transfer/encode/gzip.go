package encode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// chunk is how much of the disk one member of the gzip file has. Members can follow one another (RFC 1952, 2.2) and each is
// compressed by itself, several at a time; zeroes are a member that was compressed once.
const chunk = 1 << 20

// piece is a member that is being made.
type piece struct {
	data chan result
}

type result struct {
	member []byte
	err    error
}

// Gzip writes the disk to w, compressed.
func Gzip(ctx context.Context, w io.Writer, d Disk) error {
	ctx, cancel := context.WithCancel(ctx)
	pieces := make(chan piece, runtime.GOMAXPROCS(0)) // in their order; as many are being made at a time
	ended := make(chan error, 1)
	go func() {
		defer close(pieces)
		ended <- read(ctx, d, pieces)
	}()
	err := write(w, pieces)
	cancel()
	for p := range pieces { // what was begun ends before the disk is let go
		<-p.data
	}
	if failed := <-ended; err == nil {
		err = failed
	}
	return err
}

// write writes the members in their order.
func write(w io.Writer, pieces <-chan piece) error {
	for p := range pieces {
		r := <-p.data
		if r.err != nil {
			return r.err
		}
		if _, err := w.Write(r.member); err != nil {
			return fmt.Errorf("send the disk: %w", err)
		}
	}
	return nil
}

// read begins a member for every chunk of the disk.
func read(ctx context.Context, d Disk, pieces chan<- piece) error {
	nothing, err := member(make([]byte, chunk))
	if err != nil {
		return err
	}
	var extents [][2]int64
	for at := int64(0); at < d.Size || at == 0; at += chunk {
		if at%window == 0 {
			if extents, err = d.Data(ctx, at, min(d.Size, at+window)); err != nil {
				return fmt.Errorf("look where the disk has data: %w", err)
			}
		}
		end := min(d.Size, at+chunk)
		for len(extents) > 0 && extents[0][0]+extents[0][1] <= at {
			extents = extents[1:]
		}
		p := piece{data: make(chan result, 1)}
		if empty := len(extents) == 0 || extents[0][0] >= end; empty && end-at == chunk {
			p.data <- result{member: nothing}
		} else {
			go func() { p.data <- compressed(d, at, end, nothing) }()
		}
		select {
		case pieces <- p:
		case <-ctx.Done():
			<-p.data
			return context.Cause(ctx)
		}
	}
	return nil
}

// compressed makes one member.
func compressed(d Disk, at, end int64, nothing []byte) result {
	data := make([]byte, end-at)
	if n, err := d.ReadAt(data, at); n < len(data) {
		return result{err: fmt.Errorf("read the disk at %d: %w", at, err)}
	}
	if len(data) == chunk && zeropage.IsZero(data) {
		return result{member: nothing}
	}
	m, err := member(data)
	return result{member: m, err: err}
}

// writers are used again: each has tables of half a MiB.
var writers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one that there is
	return z
}}

func member(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z := writers.Get().(*gzip.Writer)
	defer writers.Put(z)
	z.Reset(&out)
	_, err := z.Write(data)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return out.Bytes(), nil
}

// Compress is Gzip for content that is written sequentially.
func Compress(w io.Writer, content func(io.Writer) error) error {
	z := writers.Get().(*gzip.Writer)
	defer writers.Put(z)
	z.Reset(w)
	if err := content(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return nil
}
