package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/transfer/sink"
)

// DefaultEvery is how much work a kill may cost, and long enough that the fsyncs do not slow the transfer down.
const DefaultEvery = 2 * time.Second

// keeper writes a note at intervals. Data is durable before the note that lists it.
type keeper struct {
	disk  interface{ Sync() error }
	notes sink.Checkpoint
	base  note
	claim func(*note) error // fills in what is done at the moment

	stop context.CancelFunc
	done sync.WaitGroup
	last int64 // mark of the last note
	err  error // of the target; a note that merely could not be kept is no error
}

// keep starts writing checkpoints. If the target itself fails, it calls fail. It returns nil if the transfer could not be
// continued from them.
func (i *importing) keep(claim func(*note) error, fail func(error)) *keeper {
	if !i.info.Ranged && !i.info.Resumes || i.info.Version == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &keeper{disk: i.disk, notes: i.disk, base: i.note, claim: claim, stop: cancel}
	k.done.Go(func() {
		tick := time.NewTicker(i.Every)
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
	return k
}

// end stops writing notes; with one more set it writes a last one.
func (k *keeper) end(more bool) error {
	k.stop()
	k.done.Wait()
	if !more || k.err != nil {
		return k.err
	}
	return k.note()
}

// note writes a note if there is progress to record. Only an error of fsync is returned, because then written data may be lost. A
// note that cannot be written only costs time after a crash; this happens on a full volume that still has space for the disk.
func (k *keeper) note() error {
	n := k.base
	if err := k.claim(&n); err != nil || n.Mark == k.last {
		return err
	}
	if err := k.disk.Sync(); err != nil {
		return err
	}
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the checkpoint: %w", err)
	}
	if k.notes.Save(b) == nil {
		k.last = n.Mark
	}
	return nil
}
