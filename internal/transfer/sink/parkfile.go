package sink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// parkFile holds what is parked beside a disk that is a file. Bytes are written by one goroutine; forgetting and using
// their room again may come from others.
type parkFile struct {
	file *os.File // nil until something is parked
	end  int64

	mu        sync.Mutex
	forgot    []span       // not yet given back, in order
	reclaimed atomic.Int64 // how often room was given back
}

// span is [from, to) of what is parked.
type span struct{ from, to int64 }

// spansMax bounds what is remembered of forgotten bytes; what is not remembered is merely not given back.
const spansMax = 1 << 16

func (k *parkFile) close() {
	if k.file != nil {
		_ = k.file.Close() // it will not be read again
		k.file, k.end = nil, 0
	}
}

func (k *parkFile) sync() error {
	if k.file == nil {
		return nil
	}
	if err := unix.Fdatasync(int(k.file.Fd())); err != nil {
		return Failed(fmt.Errorf("fsync what is parked: %w", err))
	}
	return nil
}

func (f *file) openPark(flags int) error {
	h, err := os.OpenFile(f.beside("parked"), os.O_RDWR|unix.O_NOFOLLOW|flags, 0o660)
	if err != nil {
		return Failed(fmt.Errorf("keep bytes whose place is not known yet: %w", err))
	}
	f.park.file = h
	return nil
}

// Park implements Parking: what is parked goes to a file beside the disk.
func (f *file) Park(p []byte) (int64, error) {
	k := &f.park
	if k.file == nil {
		if err := f.openPark(os.O_CREATE | os.O_TRUNC); err != nil {
			return 0, err
		}
	}
	at := k.end
	if _, err := k.file.WriteAt(p, at); err != nil {
		return 0, Failed(fmt.Errorf("park %d bytes whose place is not known yet, after %d others: %w", len(p), at, err))
	}
	k.end += int64(len(p))
	return at, nil
}

// Parked implements Parking.
func (f *file) Parked(p []byte, at int64) error {
	k := &f.park
	if k.file == nil || at < 0 || at+int64(len(p)) > k.end {
		return fmt.Errorf("read %d parked bytes at %d of %d", len(p), at, k.end)
	}
	if _, err := k.file.ReadAt(p, at); err != nil {
		return Failed(fmt.Errorf("read parked bytes back: %w", err))
	}
	return nil
}

// Unpark implements Parking.
func (f *file) Unpark(n int64) error {
	k := &f.park
	if k.file == nil {
		if n == 0 {
			return nil
		}
		if err := f.openPark(0); err != nil {
			return err
		}
	}
	info, err := k.file.Stat()
	if err != nil || info.Size() < n {
		return Failed(fmt.Errorf("%d bytes should be parked in %s: %w", n, k.file.Name(), errors.Join(err, io.ErrUnexpectedEOF)))
	}
	k.end = n
	return Failed(k.file.Truncate(n))
}

// Forget implements Parking. The space is freed only when there is no other: until then a crash loses nothing.
func (f *file) Forget(at, n int64) {
	k := &f.park
	k.mu.Lock()
	defer k.mu.Unlock()
	s := span{at, at + n}
	if last := len(k.forgot) - 1; last >= 0 && k.forgot[last].to == s.from {
		k.forgot[last].to = s.to
	} else if last+1 < spansMax {
		k.forgot = append(k.forgot, s)
	}
}

// reclaim gives back the room of what was forgotten and says whether there is more room than when seen was taken, which
// it renews. From then on there is no note: one would speak of bytes that are gone.
func (f *file) reclaim(seen *int64) bool {
	k := &f.park
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.reclaimed.Load(); now != *seen {
		*seen = now
		return true
	}
	if len(k.forgot) == 0 {
		return false
	}
	f.noting.Lock()
	f.ending = true
	f.noting.Unlock()
	if f.Save(nil) != nil {
		return false
	}
	before := k.reclaimed.Load()
	k.forgot = slices.DeleteFunc(k.forgot, func(s span) bool {
		from, to := (s.from+zeropage.Size-1)&^(zeropage.Size-1), s.to&^(zeropage.Size-1)
		if from >= to {
			return false // it may grow
		}
		const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
		if unix.Fallocate(int(k.file.Fd()), punch, from, to-from) == nil {
			k.reclaimed.Add(1)
		}
		return true
	})
	*seen = k.reclaimed.Load()
	return *seen != before
}
