package sequential

import (
	"fmt"
	"slices"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// maxRuns bounds how many separate parts of the file are parked: 16 bytes each in memory, about 6 in a checkpoint.
const maxRuns = 1 << 17

// run is a part of the file that is parked: where it begins in the file and under which number. It ends where the next
// run's number begins.
type run struct{ host, at int64 }

// parks knows which parts of the file have been parked.
type parks struct {
	mu   sync.Mutex // for ReadAt, which formats may call concurrently; Output need not allow that
	out  extent.Output
	runs []run
	n    int64 // bytes parked
}

// add parks p, which lies at host in the file.
func (k *parks) add(p []byte, host int64) error {
	if len(p) == 0 {
		return nil
	}
	at, err := k.out.Park(p)
	if err != nil {
		return fmt.Errorf("park %d bytes of the stream: %w", len(p), err)
	}
	if at != k.n {
		return fmt.Errorf("park %d bytes of the stream: they got number %d after %d bytes", len(p), at, k.n)
	}
	if l := len(k.runs); l == 0 || k.runs[l-1].host+k.n-k.runs[l-1].at != host {
		k.runs = append(k.runs, run{host, k.n})
	}
	k.n += int64(len(p))
	return nil
}

// find says under which number the byte at host is parked and how many from there on are; none if it is not, and then
// how many from there on are not either.
func (k *parks) find(host int64) (at, parked, absent int64) {
	i, exact := slices.BinarySearchFunc(k.runs, host, func(r run, h int64) int {
		switch {
		case r.host < h:
			return -1
		case r.host > h:
			return 1
		}
		return 0
	})
	if !exact {
		i--
	}
	if i >= 0 {
		r, end := k.runs[i], k.n
		if i+1 < len(k.runs) {
			end = k.runs[i+1].at
		}
		if n := end - r.at - (host - r.host); n > 0 {
			return r.at + host - r.host, n, 0
		}
	}
	if i+1 < len(k.runs) {
		return 0, 0, k.runs[i+1].host - host
	}
	return 0, 0, 1 << 62
}

// ReadAt reads parked bytes by where they lay in the file.
func (k *parks) ReadAt(p []byte, host int64) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := 0
	for done < len(p) {
		at, n, _ := k.find(host + int64(done))
		if n == 0 {
			return done, task.Errorf(task.BadImage, "byte %d of the file belongs both to a table and to the disk's data", host+int64(done))
		}
		n = min(n, int64(len(p)-done))
		if err := k.out.Parked(p[done:done+int(n)], at); err != nil {
			return done, fmt.Errorf("read back %d parked bytes: %w", n, err)
		}
		done += int(n)
	}
	return done, nil
}
