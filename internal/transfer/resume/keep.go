package resume

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/transfer/sink"
)

// Keeper writes a note at intervals. Data is durable before the note that lists it.
type Keeper struct {
	Disk interface {
		Sync() error
		sink.Checkpoint
	}
	Every time.Duration
	Base  Note              // what all notes of the transfer have in common
	Claim func(*Note) error // fills in what is done at the moment; it is called from another goroutine

	stop context.CancelFunc
	done sync.WaitGroup
	last int64 // mark of the last note
	err  error // of the target; a note that merely could not be kept is no error
}

// Start starts writing notes, until End. If the target itself fails, it calls fail.
func (k *Keeper) Start(fail func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	k.stop = cancel
	k.done.Go(func() {
		tick := time.NewTicker(k.Every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := k.note(); err != nil {
					k.err = err
					fail(err)
					return
				}
			}
		}
	})
}

// End stops writing notes; with more set it writes a last one.
func (k *Keeper) End(more bool) error {
	k.stop()
	k.done.Wait()
	if !more || k.err != nil {
		return k.err
	}
	return k.note()
}

// note writes a note if there is progress to record. Only an error of fsync is returned, because then written data may be lost. A
// note that cannot be written only costs time after a crash; this happens on a full volume that still has space for the disk.
func (k *Keeper) note() error {
	n := k.Base
	if err := k.Claim(&n); err != nil || n.Mark == k.last {
		return err
	}
	if err := k.Disk.Sync(); err != nil {
		return err
	}
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the checkpoint: %w", err)
	}
	if k.Disk.Save(b) == nil {
		k.last = n.Mark
	}
	return nil
}
