package earlyfill

import (
	"context"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// OpenDisk opens the disk of a task. One that a guest has used keeps the size that the guest knows, whatever is asked for by now.
func OpenDisk(t task.Task) (sink.Target, error) {
	at, err := earlyboot.Recall(t.Target.Path, t.Claim)
	if err != nil {
		return nil, err
	}
	o := sink.OptionsFor(t.Target)
	if at != nil {
		o.Size = at.Size
	}
	return sink.Open(o)
}

// ServeWhole serves a disk that an earlier run completed while its guest used it, until the guest has the disk itself. The source
// is no longer needed. done is false if there is no such disk.
func ServeWhole(ctx context.Context, t task.Task, record *progress.Record) (done bool, err error) {
	target := t.Target
	at, err := earlyboot.Recall(target.Path, t.Claim)
	if err != nil || at == nil || !at.Whole || target.Content != task.Disk {
		return false, err
	}
	disk, err := OpenDisk(t)
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
	record.Report.Format, record.Report.Virtual = string(format.Raw), at.Size
	record.Enter(task.Flushing, 0)
	return true, serveOn(ctx, target.Path, record)
}

func serveOn(ctx context.Context, path string, record *progress.Record) error {
	disk, err := earlyboot.Open(ctx, path)
	if err != nil {
		return err
	}
	server, err := earlyboot.Serve(earlyboot.Socket(path), disk.Guest(), true)
	if err != nil {
		return errors.Join(err, disk.Close())
	}
	record.Serves(func() task.Early { return task.Early{Serves: true, Clients: server.Clients()} })
	err = errors.Join(server.Idle(ctx), earlyboot.Verdict.TakeBack(path), earlyboot.Away.TakeBack(path))
	server.Close()
	return errors.Join(err, disk.Close())
}
