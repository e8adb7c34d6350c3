package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// serving is a disk that its guest uses while it is filled.
type serving struct {
	disk   *earlyboot.Disk
	server *earlyboot.Server
}

// unserved records why a disk that should be usable before it is full is not.
func (i *importing) unserved(why string) {
	if !i.task.Early {
		return
	}
	i.say("it could not be used before it was full: " + why)
	i.meter.serves(func() task.Early { return task.Early{Cannot: why} })
}

// unservable returns why the disk cannot be used before it is full, in words; empty if it can.
func (i *importing) unservable() string {
	_, shared := i.disk.(sink.Shared)
	switch {
	case !shared:
		return "it is a device, without room for notes of what the guest writes"
	case i.info.Version == "":
		return "the server does not prove that the file stays the same, by a strong ETag for example; a checksum would"
	case i.info.Passing != "":
		return "its source " + i.info.Passing
	case i.task.Claim == "":
		return "it is on no claim"
	case i.disk.Size() > earlyboot.MostSize:
		return fmt.Sprintf("it is larger than %d bytes", int64(earlyboot.MostSize))
	}
	return ""
}

// serve has the guest use the disk from now on, if it is to and can.
func (i *importing) serve(ctx context.Context, s *sweep) error {
	if !i.task.Early && i.early == nil {
		return nil
	}
	if why := i.unservable(); why != "" {
		i.unserved(why)
		return nil
	}
	places, err := earlyboot.NewMap(ctx, s.image, s.size)
	if errors.Is(err, earlyboot.ErrScattered) {
		i.unserved(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if err := i.noteBeginning(); err != nil {
		return err
	}
	path := i.task.Target.Path
	away := &absence{disk: path, now: time.Now}
	disk, err := earlyboot.Begin(ctx, earlyboot.Target{Disk: i.disk, Path: path, Claim: i.task.Claim}, i.reading(places, away))
	if err != nil {
		return err
	}
	server, err := earlyboot.Serve(earlyboot.Socket(path), disk.Guest(), i.early != nil)
	if err != nil && i.early == nil { // no machine has it, and none will
		i.unserved(err.Error())
		return disk.Close()
	}
	if err = errors.Join(err, earlyboot.Verdict.TakeBack(path), earlyboot.Away.TakeBack(path)); err != nil {
		return errors.Join(err, disk.Close())
	}
	disk.Reached(s.mark)
	i.guest, i.early = &serving{disk, server}, &earlyboot.State{Size: disk.Size()}
	i.meter.serves(func() task.Early { return task.Early{Serves: true, Clients: server.Clients()} })
	s.disk, s.blob = disk, disk.Yielding(i.patiently())
	s.reached = func(mark int64) {
		disk.Reached(mark)
		_ = away.noted(nil) // what the guest waits for may come this way too
	}
	return nil
}

// patience is how the fill retries a source that does not answer: without an end. Meanwhile the guest continues with the data that
// is present; without this worker it would have no disk.
var patience = retry.Policy{Attempts: math.MaxInt, First: time.Second, Max: 15 * time.Second, Idle: time.Hour}

// patiently returns the image's file as the fill reads it when a guest uses the disk. Its own patience is inside.
func (i *importing) patiently() source.Blob {
	p := patience
	p.Told = i.meter.waits
	return retry.Blob(i.blob, p)
}

// noteBeginning writes a checkpoint before there is progress: once a guest has used the disk, the transfer cannot be begun again.
func (i *importing) noteBeginning() error {
	if i.old != nil {
		return nil
	}
	n := i.note
	if i.sum != nil {
		var err error
		if n.Hash, err = i.sum.save(); err != nil {
			return err
		}
	}
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the checkpoint: %w", err)
	}
	return errors.Join(i.disk.Sync(), i.disk.Save(b))
}

// reading returns the image as it is read for the guest.
func (i *importing) reading(places *earlyboot.Map, away *absence) earlyboot.Source {
	var mu sync.Mutex // an expander is for one at a time, and a cluster takes it a millisecond
	x := newExpander()
	return earlyboot.Source{
		Places: places,
		Fetch: func(ctx context.Context, from, to int64) ([]byte, error) {
			to = min(to, i.info.Size)
			r, err := i.blob.Open(ctx, from, to-from)
			if err != nil {
				return nil, away.noted(err)
			}
			defer r.Close() // the bytes are here, or err says why not
			p := make([]byte, to-from)
			n, err := io.ReadFull(r, p)
			i.meter.read(int64(n))
			if err != nil {
				return nil, away.noted(fmt.Errorf("read %s at byte %d: %w", i.info.Name, from, err))
			}
			return p, away.noted(nil)
		},
		Expand: func(e format.Extent, stored []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			p, err := x.expand(e, stored)
			return append([]byte(nil), p...), err
		},
	}
}

// absence reports, to the launcher, a source that does not answer and so pauses the guest, and withdraws the report when the
// source answers.
type absence struct {
	disk string
	now  func() time.Time

	mu   sync.Mutex
	told bool
}

// noted records err, the result of a read for the guest, and returns it. Only the first error of an outage is logged: the others
// differ in words at most.
func (a *absence) noted(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil && a.told:
		a.told = earlyboot.Away.TakeBack(a.disk) != nil
	case retry.Worth(err) && !a.told:
		text := fmt.Sprintf("since %s UTC: %s", a.now().UTC().Format(time.TimeOnly), strings.ReplaceAll(err.Error(), "\n", "; "))
		a.told = earlyboot.Away.Leave(a.disk, text) == nil
	}
	return err
}

// endServing serves on until the guest has the disk itself, if all is well; else it ends at once, and leaves word if there is no
// use in waiting.
func (i *importing) endServing(ctx context.Context, err error) error {
	if i.guest == nil {
		return err
	}
	if err == nil {
		err = i.guest.server.Idle(ctx)
	}
	i.guest.disk.Stop()
	i.guest.server.Close()
	return errors.Join(err, i.guest.disk.Close(), earlyboot.Away.TakeBack(i.task.Target.Path))
}

// condemns reports whether this reason means that the guest's disk can never be completed: the image is damaged, or its server
// answers and no longer has the version that the disk was begun with. A server that does not answer is retried, and so are errors
// of the target or of the worker itself.
func condemns(r task.Reason) bool {
	switch r {
	case task.SourceNotFound, task.SourceDenied, task.SourceUntrusted, task.SourceChanged:
		return true
	case task.SourceUnreachable, task.SourceUnavailable, task.SourceTruncated, task.TargetBusy, task.TargetFailed, task.Interrupted, task.Completed:
		return false
	case task.BadTask, task.BadImage, task.UnsafeImage, task.UnsupportedImage, task.ChecksumMismatch, task.DoesNotFit:
		return true
	}
	return false
}

// condemn tells the launcher that the guest's disk cannot be completed.
func (t *Transfer) condemn(ctx context.Context, err error) error {
	reason := outcome(ctx, err)
	if !condemns(reason) || t.task.Target.Content != task.Disk {
		return err
	}
	at, recallErr := earlyboot.Recall(t.task.Target.Path, t.task.Claim)
	if at == nil || at.Whole {
		return errors.Join(err, recallErr)
	}
	next := "it is tried again, and the guest goes on when that succeeds: see to the source, or delete the machine and its volume"
	if reason.Outcome() == task.Fatal {
		next = "it is not tried again: save what the guest wrote if it is worth something, and delete the machine and its volume"
	}
	return errors.Join(err, earlyboot.Verdict.Leave(t.task.Target.Path, strings.ReplaceAll(err.Error(), "\n", "; ")+"; "+next))
}

// serveWhole serves a disk that an earlier run completed while its guest used it, until the guest has the disk itself. The source
// is no longer needed.
func (t *Transfer) serveWhole(ctx context.Context) (done bool, err error) {
	target := t.task.Target
	at, err := earlyboot.Recall(target.Path, t.task.Claim)
	if err != nil || at == nil || !at.Whole || target.Content != task.Disk {
		return false, err
	}
	disk, err := t.open()
	if err != nil {
		return false, err
	}
	err = disk.Begin(at.Size, true)
	if err == nil {
		err = disk.Finish()
	}
	if errors.Is(err, sink.ErrFinished) {
		err = nil
	}
	if err = errors.Join(err, disk.Close()); err != nil {
		return false, err
	}
	t.report.Format, t.report.Virtual = string(format.Raw), at.Size
	t.meter.enter(task.Flushing, 0)
	return true, t.serveOn(ctx)
}

func (t *Transfer) serveOn(ctx context.Context) error {
	path := t.task.Target.Path
	disk, err := earlyboot.Open(ctx, path)
	if err != nil {
		return err
	}
	server, err := earlyboot.Serve(earlyboot.Socket(path), disk.Guest(), true)
	if err != nil {
		return errors.Join(err, disk.Close())
	}
	t.meter.serves(func() task.Early { return task.Early{Serves: true, Clients: server.Clients()} })
	err = errors.Join(server.Idle(ctx), earlyboot.Verdict.TakeBack(path), earlyboot.Away.TakeBack(path))
	server.Close()
	return errors.Join(err, disk.Close())
}
