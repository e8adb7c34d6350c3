package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/transfer/earlyfill"
	"github.com/berth-vm/berth/internal/transfer/sweep"
)

// fill returns the disk as one that a guest may use meanwhile.
func (i *importing) fill() earlyfill.Fill {
	return earlyfill.Fill{Task: i.Task, Blob: i.blob, Info: i.info, Disk: i.disk, Record: i.Record, Used: i.used}
}

// serve has the guest use the disk from now on, if it is to and can.
func (i *importing) serve(ctx context.Context, pass *sweep.Pass) error {
	guest, err := i.fill().Serve(ctx, pass, i.noteBeginning)
	if guest != nil {
		i.guest, i.used = guest, true
	}
	return err
}

// noteBeginning writes a checkpoint before there is progress: once a guest has used the disk, the transfer cannot be begun again.
func (i *importing) noteBeginning() error {
	if i.old != nil {
		return nil
	}
	n := i.note
	if i.sum != nil {
		var err error
		if n.Hash, err = i.sum.Save(); err != nil {
			return err
		}
	}
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the checkpoint: %w", err)
	}
	return errors.Join(i.disk.Sync(), i.disk.Save(b))
}
