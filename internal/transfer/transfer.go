// Package transfer is the data plane: it carries out one task.Task, from the bytes at a source to a disk (or a directory) that is
// on stable storage, in one pass, in bounded memory, and so that a run that was killed can be continued.
//
// It checks the task, opens its source, and leaves the rest to the packages below it: ingest for bytes, volumefiles for the files beside a
// disk, stages for a disk that comes in stages. It does not know Kubernetes, and it decides nothing about retries: it leaves a Report, and
// the controller decides the next step.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyfill"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/ingest"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/stages"
)

// Transfer carries out one task.
type Transfer struct {
	// Every is how often the progress is noted at the target; New sets DefaultEvery.
	Every time.Duration

	every  int64 // decoded bytes between two places a compressed stream can continue from
	task   task.Task
	dir    string // of a whole volume, on which the task's target is the disk; empty: there is only the disk
	record *progress.Record
}

// DefaultEvery is how much work a kill may cost, and long enough that the fsyncs do not slow the transfer down.
const DefaultEvery = 2 * time.Second

// stateEvery is some seconds of data on a slow network, and little compared with the cost of decoding it.
const stateEvery = 8 << 20

// New makes a transfer for t. It does nothing before Run.
func New(t task.Task) *Transfer {
	t, dir := asDisk(t)
	return &Transfer{Every: DefaultEvery, every: stateEvery, task: t, dir: dir, record: progress.NewRecord()}
}

// Progress may be called at any time, from any goroutine.
func (t *Transfer) Progress() task.Progress { return t.record.Progress(time.Now()) }

// Run carries out the task: it opens the source, copies its bytes, and reports the result. If ctx ends, the progress is noted at
// the target, and the report says Interrupted. It must be called only once.
func (t *Transfer) Run(ctx context.Context) task.Report {
	return t.record.End(ctx, t.run(ctx))
}

// RunFrom is Run with the bytes of blob, whatever source the task names: an upload brings its own. It closes blob.
func (t *Transfer) RunFrom(ctx context.Context, blob source.Blob) task.Report {
	err := t.validate()
	if err == nil {
		_, err = t.bring(ctx, blob)
	}
	_ = blob.Close()
	return t.record.End(ctx, err)
}

func (t *Transfer) run(ctx context.Context) error {
	if err := t.validate(); err != nil {
		return err
	}
	if t.task.Source.Blank != nil {
		return t.blank(ctx)
	}
	if t.dir != "" {
		return t.volume(ctx)
	}
	if done, err := earlyfill.ServeWhole(ctx, t.task, t.record); done || err != nil {
		return err
	}
	blob, err := t.openSource(ctx)
	if err != nil {
		return earlyfill.Condemn(ctx, t.task, err)
	}
	defer blob.Close() // read to its end, or abandoned on purpose
	if stage := t.task.Checkpoint; stage != nil && stage.Previous != "" {
		return stages.Apply(ctx, t.task, blob, t.record)
	}
	size, err := t.bring(ctx, blob)
	if err == nil && t.task.Checkpoint != nil {
		err = stages.Done(t.task, size)
	}
	return err
}

// bring brings the bytes of a source to the target, and returns the size of the disk in the image.
func (t *Transfer) bring(ctx context.Context, blob source.Blob) (size int64, err error) {
	return ingest.Job{Task: t.task, Record: t.record, Every: t.Every, Places: t.every}.Run(ctx, blob)
}

// validate returns an error for an invalid task, before anything is changed.
func (t *Transfer) validate() error {
	k := t.task
	var wrong error
	switch {
	case k.Version != task.Version:
		wrong = fmt.Errorf("task version %d, this worker knows %d: worker and controller come from different releases",
			k.Version, task.Version)
	case k.Target.Path == "":
		wrong = errors.New("the task names no target")
	case k.Target.Content != task.Disk && k.Target.Content != task.Archive:
		wrong = fmt.Errorf("content %q is neither %q nor %q", k.Target.Content, task.Disk, task.Archive)
	case k.Target.Size < 0:
		wrong = fmt.Errorf("target size %d is negative", k.Target.Size)
	case t.dir != "" && k.Source.Local == nil && k.Source.Peer == nil:
		wrong = errors.New("only a volume can be cloned as a whole")
	case k.Raw && k.Target.Content == task.Archive:
		wrong = errors.New("the contents are said to be a raw disk and an archive: they cannot be both")
	case k.Checkpoint != nil && (k.Target.Content != task.Disk || !k.Source.IsFile() || k.Early || k.Checksum != ""):
		wrong = errors.New("a stage is a disk from a server, without a checksum, and is not used before the last")
	case k.Source.Blank != nil && k.Target.Content == task.Archive:
		wrong = errors.New("Cannot create empty disk with content type archive") //nolint:staticcheck // a text clients know
	}
	if wrong != nil {
		return &task.Error{Reason: task.BadTask, Err: wrong}
	}
	return nil
}

// blank makes an empty disk. A device may hold old data, so all of it is zeroed.
func (t *Transfer) blank(ctx context.Context) error {
	o := sink.OptionsFor(t.task.Target)
	o.Zeroed = func(done int64) error {
		t.record.Reached(done)
		return ctx.Err()
	}
	disk, err := sink.Open(o)
	if err != nil {
		return err
	}
	return errors.Join(t.makeBlank(disk), disk.Close())
}

func (t *Transfer) makeBlank(disk sink.Disk) error {
	size, err := disk.Limit()
	if err != nil {
		return err
	}
	t.record.Enter(task.Transferring, size)
	if err := disk.Begin(0, false); err != nil {
		return err
	}
	t.record.Report.Format, t.record.Report.Virtual = string(format.Raw), disk.Size()
	t.record.SaySize(disk.Size(), t.task.Target.Size)
	t.record.Enter(task.Flushing, 0)
	err = disk.Finish()
	t.record.Report.Written = disk.Written()
	return err
}
