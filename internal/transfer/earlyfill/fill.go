// Package earlyfill lets a guest use a disk while a transfer fills it. It decides whether that can be, serves the disk to the guest, has
// both read the source, and tells the guest's launcher about a source that is away or that can never complete the disk.
//
// It does not know how the parts of a disk that is used are kept apart (package earlyboot does), nor how the rest is brought (package
// sweep does).
package earlyfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/expand"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
	"github.com/berth-vm/berth/internal/transfer/sweep"
)

// Fill is a disk that is filled.
type Fill struct {
	Task   task.Task
	Blob   source.Blob
	Info   source.Info // of the blob, without a version that proves nothing
	Disk   sink.Target
	Record *progress.Record
	Used   bool // a guest may have used the disk in an earlier run
}

// Serving is a disk that its guest uses while it is filled; nil: no guest does.
type Serving struct {
	path   string
	disk   *earlyboot.Disk
	server *earlyboot.Server
}

// Unserved records why a disk that should be usable before it is full is not.
func (f Fill) Unserved(why string) {
	if !f.Task.Early {
		return
	}
	f.Record.Say("it could not be used before it was full: " + why)
	f.Record.Serves(func() task.Early { return task.Early{Cannot: why} })
}

// unservable returns why the disk cannot be used before it is full, in words; empty if it can.
func (f Fill) unservable() string {
	_, shared := f.Disk.(sink.Shared)
	switch {
	case !shared:
		return "it is a device, without room for notes of what the guest writes"
	case f.Info.Version == "":
		return "the server does not prove that the file stays the same, by a strong ETag for example; a checksum would"
	case f.Info.Passing != "":
		return "its source " + f.Info.Passing
	case f.Task.Claim == "":
		return "it is on no claim"
	case f.Disk.Size() > earlyboot.MostSize:
		return fmt.Sprintf("it is larger than %d bytes", int64(earlyboot.MostSize))
	}
	return ""
}

// Serve has the guest use the disk from now on, if it is to and can; nil: it cannot. The pass brings the rest. begun is called before the
// first use: it notes that the transfer has begun.
func (f Fill) Serve(ctx context.Context, pass *sweep.Pass, begun func() error) (*Serving, error) {
	if !f.Task.Early && !f.Used {
		return nil, nil
	}
	if why := f.unservable(); why != "" {
		f.Unserved(why)
		return nil, nil
	}
	places, err := earlyboot.NewMap(ctx, pass.Image, pass.Size)
	if errors.Is(err, earlyboot.ErrScattered) {
		f.Unserved(err.Error())
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := begun(); err != nil {
		return nil, err
	}
	path := f.Task.Target.Path
	away := &absence{disk: path, now: time.Now}
	disk, err := earlyboot.Begin(ctx, earlyboot.Target{Disk: f.Disk, Path: path, Claim: f.Task.Claim}, f.reading(places, away))
	if err != nil {
		return nil, err
	}
	server, err := earlyboot.Serve(earlyboot.Socket(path), disk.Guest(), f.Used)
	if err != nil && !f.Used { // no machine has it, and none will
		f.Unserved(err.Error())
		return nil, disk.Close()
	}
	if err = errors.Join(err, earlyboot.Verdict.TakeBack(path), earlyboot.Away.TakeBack(path)); err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	disk.Reached(pass.Mark())
	f.Record.Serves(func() task.Early { return task.Early{Serves: true, Clients: server.Clients()} })
	pass.Disk, pass.Blob = disk, disk.Yielding(f.patiently())
	pass.Reached = func(mark int64) {
		disk.Reached(mark)
		_ = away.noted(nil) // what the guest waits for may come this way too
	}
	return &Serving{path, disk, server}, nil
}

// patience is how the fill retries a source that does not answer: without an end. Meanwhile the guest continues with the data that
// is present; without this worker it would have no disk.
var patience = retry.Policy{Attempts: math.MaxInt, First: time.Second, Max: 15 * time.Second, Idle: time.Hour}

// patiently returns the image's file as the fill reads it when a guest uses the disk. Its own patience is inside.
func (f Fill) patiently() source.Blob {
	p := patience
	p.Told = f.Record.Waits
	return retry.Blob(f.Blob, p)
}

// reading returns the image as it is read for the guest.
func (f Fill) reading(places *earlyboot.Map, away *absence) earlyboot.Source {
	var mu sync.Mutex // an expander is for one at a time, and a cluster takes it a millisecond
	x := expand.New()
	return earlyboot.Source{
		Places: places,
		Fetch: func(ctx context.Context, from, to int64) ([]byte, error) {
			to = min(to, f.Info.Size)
			r, err := f.Blob.Open(ctx, from, to-from)
			if err != nil {
				return nil, away.noted(err)
			}
			defer r.Close() // the bytes are here, or err says why not
			p := make([]byte, to-from)
			n, err := io.ReadFull(r, p)
			f.Record.Fetched(int64(n))
			if err != nil {
				return nil, away.noted(fmt.Errorf("read %s at byte %d: %w", f.Info.Name, from, err))
			}
			return p, away.noted(nil)
		},
		Expand: func(e format.Extent, stored []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			p, err := x.Expand(e, stored)
			return append([]byte(nil), p...), err
		},
	}
}

// Complete records that all of the disk is there.
func (s *Serving) Complete() error {
	if s == nil {
		return nil
	}
	return s.disk.Complete()
}

// End serves on until the guest has the disk itself, if all is well; else it ends at once, and leaves word if there is no
// use in waiting.
func (s *Serving) End(ctx context.Context, err error) error {
	if s == nil {
		return err
	}
	if err == nil {
		err = s.server.Idle(ctx)
	}
	s.disk.Stop()
	s.server.Close()
	return errors.Join(err, s.disk.Close(), earlyboot.Away.TakeBack(s.path))
}
