package imagestream

import (
	"io"
	"sync"

	"github.com/berth-vm/berth/internal/transfer/checksum"
	"github.com/berth-vm/berth/internal/transfer/progress"
)

// feed is the source's bytes in order, on their way to a decoder: counted, and hashed if a checksum was asked for.
type feed struct {
	r     io.Reader
	meter *progress.Meter
	sum   *checksum.Sum // nil if none was asked for

	mu    sync.Mutex
	at    int64 // of the source
	marks []hashMark
}

// hashMark is the state of the checksum somewhere in the source. A decoder reads ahead, so when it names a place from
// which it can continue, the checksum is already beyond it; it is continued from the last mark before that place.
type hashMark struct {
	at    int64
	state []byte
}

// markEvery is the distance of two marks, and so the most that may be read again in excess of the decoder's need.
const markEvery = 1 << 20

func newFeed(r io.Reader, at int64, sum *checksum.Sum, m *progress.Meter) (*feed, error) {
	f := &feed{r: r, meter: m, sum: sum, at: at}
	return f, f.mark()
}

// mark takes down the state of the checksum. f.mu is held, or no one else knows f yet.
func (f *feed) mark() error {
	if f.sum == nil {
		return nil
	}
	state, err := f.sum.Save()
	if err == nil {
		f.marks = append(f.marks, hashMark{f.at, state})
	}
	return err
}

// Read implements io.Reader.
func (f *feed) Read(p []byte) (int, error) {
	n, err := f.r.Read(p[:min(len(p), markEvery)])
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at += int64(n)
	if f.sum != nil {
		f.sum.Write(p[:n]) // a hash never fails
		if f.at-f.marks[len(f.marks)-1].at >= markEvery {
			if err := f.mark(); err != nil {
				return n, err
			}
		}
	}
	f.meter.Fetched(int64(n))
	f.meter.Reached(f.at)
	return n, err
}

// before returns the last mark at or before off, and forgets those before it: off only ever grows.
func (f *feed) before(off int64) hashMark {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.marks) > 1 && f.marks[1].at <= off {
		f.marks = f.marks[1:]
	}
	if len(f.marks) == 0 {
		return hashMark{at: off}
	}
	return f.marks[0]
}
