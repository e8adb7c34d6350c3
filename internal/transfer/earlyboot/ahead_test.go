package earlyboot

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// asked is a range that was requested from a source, and the channel that releases the answer.
type asked struct {
	from, to int64
	come     chan struct{}
}

// slowDisk returns a disk of a raw image of ones, each stretch of which comes when the test says so.
func slowDisk(t *testing.T, size int64) (*Disk, <-chan asked) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	target, err := sink.Open(sink.Options{Path: path})
	if err == nil {
		err = target.Begin(size, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan asked, 8)
	d, err := Begin(t.Context(), Target{Disk: target, Path: path, Claim: "claim"}, Source{
		Places: &Map{all: []format.Extent{{Stored: size, Size: size}}},
		Fetch: func(ctx context.Context, from, to int64) ([]byte, error) {
			a := asked{from, to, make(chan struct{})}
			all <- a
			select {
			case <-a.come:
				return bytes.Repeat([]byte{1}, int(to-from)), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Close()
		_ = target.Close()
	})
	return d, all
}

// waits reports whether the fill waits for the guest at this moment.
func (d *Disk) waits() bool {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	return d.gate.n > 0
}

// TestReadAheadHoldsNobodyUp: the fill waits while the guest waits, and not while something is fetched that the guest has not asked for; until it does.
func TestReadAheadHoldsNobodyUp(t *testing.T) {
	d, all := slowDisk(t, 16<<20)
	read := func(off int64) <-chan error {
		done := make(chan error, 1)
		go func() {
			p := make([]byte, cluster)
			_, err := d.Guest().ReadAt(p, off)
			if err == nil && !bytes.Equal(p, bytes.Repeat([]byte{1}, cluster)) {
				t.Error("other bytes were read")
			}
			done <- err
		}()
		return done
	}
	for off := int64(0); off < 2*cluster; off += cluster { // the second in order begins to read ahead
		done := read(off)
		a := <-all
		if a.from != off || !d.waits() {
			t.Errorf("the guest waits for %d, %d is fetched, and the fill waits: %t", off, a.from, d.waits())
		}
		close(a.come)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	ahead := <-all
	if ahead.from != 2*cluster || d.waits() {
		t.Errorf("%d is read ahead, and the fill waits: %t", ahead.from, d.waits())
	}
	done := read(2 * cluster)
	for end := time.Now().Add(10 * time.Second); !d.waits(); time.Sleep(time.Millisecond) { //nolint:forbidigo // there is no event for it
		if time.Now().After(end) {
			t.Fatal("the guest waits for what is read ahead, and the fill does not let it go first")
		}
	}
	close(ahead.come)
	if err := <-done; err != nil || d.waits() {
		t.Errorf("%v, and the fill waits: %t", err, d.waits())
	}
}
