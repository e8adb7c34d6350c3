package earlyboot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/transfer/sink"
)

// Disk is a disk that is filled and used at the same time. For the fill it is a sink.Target that leaves out the ranges that the
// guest has already; Guest returns the guest's view.
type Disk struct {
	sink.Target
	source  Source
	size    int64
	claim   string
	path    string   // of the disk when it is done
	file    *os.File // the disk, written as it is: the sink leaves zeroes out
	journal *journal

	ctx   context.Context // of what is fetched for the guest
	stop  context.CancelFunc
	ahead sync.WaitGroup
	slots chan struct{} // for what is fetched before the guest asks
	some  chan struct{} // for what is fetched at once

	reached atomic.Int64 // the fill has put everything of the file before this on the disk
	whole   atomic.Bool  // everything is there
	// Demanded counts the bytes that were fetched because the guest asked.
	Demanded atomic.Int64

	ranges  ranges
	gate    gate
	streams streams
	mu      sync.Mutex // guards the sets
	present bits
	noted   bits // those of them that are in the journal
}

// Bounds of what is fetched for the guest: stretches at a time, and those that it has not asked for yet.
const (
	fetches   = 8
	prefetchs = 2
	// longestFetch is one stretch. The guest waits for it as a whole.
	longestFetch = 1 << 20
)

// Target is the disk that is filled.
type Target struct {
	Disk  sink.Target // Begin was called
	Path  string      // where it will be
	Claim string      // that it is on
}

// Begin opens the disk for a guest. Earlier writes of the guest are kept, as far as the notes beside the disk list them.
func Begin(ctx context.Context, t Target, s Source) (*Disk, error) {
	shared, ok := t.Disk.(sink.Shared)
	if !ok {
		return nil, errors.New("the disk is no file, so there is no room beside it to note what the guest writes")
	}
	h, own, err := readJournal(journalFile(t.Path), t.Claim)
	if err != nil {
		return nil, err
	}
	size := t.Disk.Size()
	d := &Disk{Target: t.Disk, source: s, size: size, claim: t.Claim, path: t.Path, present: newBits(size), noted: newBits(size),
		slots: make(chan struct{}, prefetchs), some: make(chan struct{}, fetches)}
	if h != nil && own != nil {
		if h.Size > size {
			return nil, fmt.Errorf("the guest had a disk of %d bytes, and this one has %d", h.Size, size)
		}
		copy(d.present, own)
		copy(d.noted, own)
	}
	if d.file, err = shared.Again(); err != nil {
		return nil, err
	}
	// What the notes speak of is made durable before they are taken over: some may be younger than the last flush.
	if err = d.file.Sync(); err == nil {
		d.journal, err = newJournal(journalFile(t.Path), heading{Claim: t.Claim, Size: size}, d.noted)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the disk for its guest: %w", err), d.file.Close())
	}
	d.ctx, d.stop = context.WithCancel(ctx)
	return d, nil
}

// State is the record of a disk that a guest may use, or has used, before it was full.
type State struct {
	Size int64
	// Whole: the disk is complete, and the fill has ended.
	Whole bool
}

// Recall returns the notes beside the disk of a claim; nil without an error if no guest could use the disk so far.
func Recall(path, claim string) (*State, error) {
	h, _, err := readJournal(journalFile(path), claim)
	if h == nil || err != nil {
		return nil, err
	}
	return &State{h.Size, h.Whole}, nil
}

// Open returns a disk that is complete and only served, until its guest needs no server any more.
func Open(ctx context.Context, path string) (*Disk, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the disk: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at the disk: %w", err), f.Close())
	}
	d := &Disk{file: f, size: info.Size(), path: path}
	d.ctx, d.stop = context.WithCancel(ctx)
	d.whole.Store(true)
	return d, nil
}

// Reached records that the fill has written all data of the image's file before mark to the disk.
func (d *Disk) Reached(mark int64) { d.reached.Store(mark) }

// Complete records that the disk is complete and verified. It is called when the fill has ended; after that the disk is never
// filled again, whatever happens to this process.
func (d *Disk) Complete() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("fsync the disk: %w", err)
	}
	d.whole.Store(true)
	// Writes in progress may still note clusters in the old file, which is not read again.
	done, err := newJournal(journalFile(d.path), heading{Claim: d.claim, Size: d.size, Whole: true}, nil)
	if err != nil {
		return err
	}
	return done.close()
}

// Stop ends what is fetched for the guest: its reads fail.
func (d *Disk) Stop() { d.stop() }

// Close closes what Begin opened; the sink is the caller's. The disk must not be served any more.
func (d *Disk) Close() error {
	d.stop()
	d.ahead.Wait()
	err := d.file.Close()
	if d.journal != nil {
		err = errors.Join(err, d.journal.close())
	}
	return err
}

// WriteAt implements sink.Disk for the fill.
func (d *Disk) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	defer d.ranges.hold(off, end)()
	for at := off; at < end; {
		has := d.isSet(d.present, at/cluster)
		next := at
		for next < end && d.isSet(d.present, next/cluster) == has {
			next = min(end, (next/cluster+1)*cluster)
		}
		if !has {
			if _, err := d.Target.WriteAt(p[at-off:next-off], at); err != nil {
				return 0, err
			}
		}
		at = next
	}
	return len(p), nil
}

func (d *Disk) isSet(b bits, c int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return b.has(c)
}

// all reports whether every cluster of [from, to) is in the set.
func (d *Disk) all(b bits, from, to int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := from / cluster; c*cluster < to; c++ {
		if !b.has(c) {
			return false
		}
	}
	return true
}

func (d *Disk) set(b bits, from, to int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := from / cluster; c*cluster < to; c++ {
		b.add(c)
	}
}
