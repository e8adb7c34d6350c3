// Package transfer is the data plane: it carries out one task.Task, from the bytes at a source to a disk (or a directory) that is
// on stable storage, in one pass, in bounded memory, and so that a run that was killed can be continued.
//
// It does not know Kubernetes, and it decides nothing about retries: it leaves a Report, and the controller decides the next step.
// The protocol between two workers that clone a volume is described in package peerproto.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Transfer carries out one task.
type Transfer struct {
	// Every is how often the progress is noted at the target; New sets DefaultEvery.
	Every time.Duration

	every  int64 // decoded bytes between two places a compressed stream can continue from
	task   task.Task
	dir    string // of a whole volume, on which the task's target is the disk; empty: there is only the disk
	meter  *meter
	report task.Report // what is known so far
	remark string      // for the report's detail: why an earlier run was not continued, or cannot be

	imageSize int64 // of the disk in the image; 0: that is not known
	fileBytes int64 // written to other files than the disk
}

// stateEvery is some seconds of data on a slow network, and little compared with the cost of decoding it.
const stateEvery = 8 << 20

// New makes a transfer for t. It does nothing before Run.
func New(t task.Task) *Transfer {
	t, dir := asDisk(t)
	return &Transfer{Every: DefaultEvery, every: stateEvery, task: t, dir: dir, meter: newMeter(), report: task.Report{Version: task.Version}}
}

// Progress may be called at any time, from any goroutine.
func (t *Transfer) Progress() task.Progress { return t.meter.progress(time.Now()) }

// Run carries out the task: it opens the source, copies its bytes, and reports the result. If ctx ends, the progress is noted at
// the target, and the report says Interrupted. It must be called only once.
func (t *Transfer) Run(ctx context.Context) task.Report {
	return t.end(ctx, t.run(ctx))
}

// RunFrom is Run with the bytes of blob, whatever source the task names: an upload brings its own. It closes blob.
func (t *Transfer) RunFrom(ctx context.Context, blob source.Blob) task.Report {
	err := t.validate()
	if err == nil {
		err = t.bring(ctx, blob)
	}
	_ = blob.Close()
	return t.end(ctx, err)
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
	if done, err := t.serveWhole(ctx); done || err != nil {
		return err
	}
	blob, err := t.openSource(ctx)
	if err != nil {
		return t.condemn(ctx, err)
	}
	defer blob.Close() // read to its end, or abandoned on purpose
	switch stage := t.task.Checkpoint; {
	case stage == nil:
		return t.bring(ctx, blob)
	case stage.Previous == "":
		if err := t.bring(ctx, blob); err != nil {
			return err
		}
		return t.noteStage(stageNote{Claim: t.task.Claim, Checkpoint: stage.Current, Virtual: t.imageSize})
	}
	return t.stage(ctx, blob)
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

// bring brings the bytes of a source to the target.
func (t *Transfer) bring(ctx context.Context, blob source.Blob) error {
	info := blob.Info()
	t.report.Labels = info.Labels
	t.meter.enter(task.Transferring, info.Size)
	sum, err := parseChecksum(t.task.Checksum)
	if m := info.Member; m != nil && err == nil && sum == nil {
		sum, err = parseChecksum(m.Digest)
	}
	if err != nil {
		return err
	}
	if t.task.Target.Content == task.Archive {
		return t.unpack(ctx, blob, sum)
	}
	disk, err := t.open()
	if err != nil {
		return err
	}
	i := &importing{Transfer: t, blob: blob, info: info, disk: disk, sum: sum}
	err = t.condemn(ctx, i.run(ctx))
	t.report.Written = t.fileBytes + disk.Written()
	if err != nil && outcome(ctx, err).Outcome() == task.Fatal && i.early == nil {
		err = errors.Join(err, disk.Discard()) // nothing of it can be used
	}
	return errors.Join(err, disk.Close())
}

// open opens the disk. One that a guest has used keeps the size that the guest knows, whatever is asked for by now.
func (t *Transfer) open() (sink.Target, error) {
	at, err := earlyboot.Recall(t.task.Target.Path, t.task.Claim)
	if err != nil {
		return nil, err
	}
	o := t.options()
	if at != nil {
		o.Size = at.Size
	}
	return sink.Open(o)
}

func (t *Transfer) options() sink.Options {
	target := t.task.Target
	return sink.Options{Path: target.Path, Size: target.Size, Preallocate: target.Preallocate}
}

// blank makes an empty disk. A device may hold old data, so all of it is zeroed.
func (t *Transfer) blank(ctx context.Context) error {
	o := t.options()
	o.Zeroed = func(done int64) error {
		t.meter.reached(done)
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
	t.meter.enter(task.Transferring, size)
	if err := disk.Begin(0, false); err != nil {
		return err
	}
	t.report.Format, t.report.Virtual = string(format.Raw), disk.Size()
	t.tellSize(disk.Size())
	t.meter.enter(task.Flushing, 0)
	err = disk.Finish()
	t.report.Written = disk.Written()
	return err
}

// tellSize remarks that a disk is smaller than was asked for.
func (t *Transfer) tellSize(size int64) {
	if asked := t.task.Target.Size; size < asked {
		t.say(fmt.Sprintf("the disk has %d bytes: its filesystem has no room for the %d that were asked for", size, asked))
	}
}

// say adds to the report what a person may want to know of a transfer that went well.
func (t *Transfer) say(remark string) {
	if t.remark != "" {
		t.remark += "; "
	}
	t.remark += remark
}

// fits returns whether an image's disk fits the target; the first sentence is a text clients know.
func fits(virtual, limit int64) error {
	if virtual <= limit {
		return nil
	}
	return task.Errorf(task.DoesNotFit, "virtual image size %d is larger than the reported available storage %d. A larger PVC is required", virtual, limit)
}

// outcome returns the reason that goes with an error.
func outcome(ctx context.Context, err error) task.Reason {
	var known *task.Error
	var network net.Error
	switch {
	case err == nil:
		return task.Completed
	case ctx.Err() != nil:
		return task.Interrupted
	case errors.As(err, &known):
		return known.Reason
	case errors.As(err, &network):
		return task.SourceUnreachable
	}
	return task.TargetFailed
}

// oneLine returns an error for a report.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// end makes the report.
func (t *Transfer) end(ctx context.Context, err error) task.Report {
	r := t.report
	r.Read = t.meter.fetched.Load()
	r.Reason = outcome(ctx, err)
	r.Outcome = r.Reason.Outcome()
	r.Detail = t.remark
	switch {
	case r.Reason == task.Interrupted:
		r.Detail = "told to stop; what was done so far is kept"
	case err != nil:
		r.Detail = oneLine(err)
	default:
		t.meter.enter(task.Finished, 0)
	}
	return r
}
