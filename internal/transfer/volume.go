package transfer

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/earlyfill"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/volumefiles"
)

// A volume is cloned with all its files: first the others, then the disk among them, if there is one, as from any other source. So
// a disk that is being copied, and one that a guest uses meanwhile, has its files beside it.

// asDisk returns a task for a whole volume as one for the disk on it, and the directory of the rest; empty if the task is no
// such.
func asDisk(t task.Task) (disk task.Task, dir string) {
	if t.Target.Content != task.Volume {
		return t, ""
	}
	dir = t.Target.Path
	t.Target.Content, t.Target.Path = task.Disk, filepath.Join(dir, task.DiskFile)
	return t, dir
}

// volume brings a whole volume.
func (t *Transfer) volume(ctx context.Context) error {
	if done, err := earlyfill.ServeWhole(ctx, t.task, t.record); done || err != nil {
		return err
	}
	blob, err := t.openSource(ctx)
	diskless := errors.Is(err, source.ErrNoDisk)
	if err != nil && !diskless {
		return earlyfill.Condemn(ctx, t.task, err)
	}
	if blob != nil {
		defer blob.Close() // read to its end, or abandoned on purpose
	}
	at, err := earlyboot.Recall(t.task.Target.Path, t.task.Claim)
	switch {
	case err != nil:
		return err
	case at != nil && diskless:
		return earlyfill.Condemn(ctx, t.task, task.Errorf(task.SourceChanged, "the source has no disk any more, and a guest has used what there is of it"))
	case at == nil: // else the files came before the guest had the disk
		if err := (volumefiles.Clone{From: t.task.Source, Dir: t.dir, NoDisk: diskless, Record: t.record}).Run(ctx); err != nil {
			return err
		}
	}
	if diskless {
		t.record.Report.Format = "files"
		if t.task.Early {
			t.record.Say("no machine can use it: it has no disk")
			t.record.Serves(func() task.Early { return task.Early{Cannot: "it has no disk"} })
		}
		return nil
	}
	_, err = t.bring(ctx, blob)
	return err
}
