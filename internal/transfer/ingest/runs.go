package ingest

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/resume"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

const (
	runSize = 1 << 20
	// runWriters overlap the wait for the device with the network; more of them only need more memory.
	runWriters = 2
)

// runs brings a raw disk that comes in order and says itself where it is zero: an upload whose sender knows.
func (i *importing) runs(ctx context.Context, blob source.Runs) error {
	i.note.Format, i.note.Virtual = string(format.Raw), i.info.Size
	if i.old != nil && (i.old.State != nil || i.old.Format != i.note.Format || i.old.Virtual != i.note.Virtual) {
		i.old = nil
	}
	done, err := i.begin(i.info.Size)
	if done || err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runs{importing: i, fail: cancel, under: map[int64]struct{}{}}
	if i.old != nil {
		r.at = i.old.Mark
	}
	in, err := blob.OpenRuns(ctx, r.at)
	if err != nil {
		return err
	}
	defer in.Close() // read to its end, or abandoned on purpose
	k := i.keep(r.claim, cancel)
	err = r.run(ctx, in)
	return i.finish(because(ctx, err), k)
}

// runs is a disk on its way from one reader to a few writers.
type runs struct {
	*importing
	fail context.CancelCauseFunc

	mu    sync.Mutex         // guards what follows
	at    int64              // of the disk; what lies before was read
	under map[int64]struct{} // where the runs begin that are being written
}

// run is a contiguous range of the disk. Its buffer has the same offset from a page boundary as its position, so that direct I/O
// needs no copy.
type run struct {
	p, buf []byte
	off    int64
}

func (r *runs) run(ctx context.Context, in source.RunReader) error {
	free, jobs := make(chan []byte, runWriters+1), make(chan run)
	for range cap(free) {
		free <- make([]byte, runSize+zeropage.Size)
	}
	var writers sync.WaitGroup
	for range runWriters {
		writers.Go(func() {
			for j := range jobs {
				if _, err := r.disk.WriteAt(j.p, j.off); err != nil {
					r.fail(err)
				} else {
					r.wrote(j.off)
				}
				free <- j.buf
			}
		})
	}
	err := r.read(ctx, in, free, jobs)
	close(jobs)
	writers.Wait()
	if err == nil {
		err = context.Cause(ctx) // a write may have failed after the last read
	}
	return err
}

// read sends the data of in until all of it was read.
func (r *runs) read(ctx context.Context, in source.RunReader, free chan []byte, jobs chan<- run) error {
	for r.at < r.info.Size {
		buf := <-free
		j := run{buf: buf, off: r.at}
		begin := int(r.at % zeropage.Size)
		n, zeroes, err := begin, int64(0), error(nil)
		for n < len(buf) && r.at+int64(n-begin) < r.info.Size && zeroes == 0 && err == nil && ctx.Err() == nil {
			var m int
			m, zeroes, err = in.Next(buf[n:])
			n += m
		}
		if over := r.at + int64(n-begin) + zeroes - r.info.Size; err == nil && over > 0 {
			err = task.Errorf(task.BadImage, "%s has %d bytes more than announced", r.info.Name, over)
		}
		if errors.Is(err, io.EOF) {
			err = task.Errorf(task.SourceTruncated, "%s ended at byte %d of %d: %w", r.info.Name, r.at+int64(n-begin), r.info.Size, io.ErrUnexpectedEOF)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		j.p = buf[begin:n]
		r.advance(j.off, int64(len(j.p)), zeroes)
		if len(j.p) == 0 {
			free <- buf
			continue
		}
		jobs <- j
	}
	return nil
}

// advance notes that a run has to be written and that zeroes follow it.
func (r *runs) advance(off, n, zeroes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.under[off] = struct{}{}
	}
	r.at += n + zeroes
	r.Record.Fetched(n)
	r.Record.Reached(r.at)
}

func (r *runs) wrote(off int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.under, off)
}

// claim sets the progress in a note: all data before the first run that is not written yet.
func (r *runs) claim(n *resume.Note) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.Mark = min(r.at, r.disk.Tail())
	for off := range r.under {
		n.Mark = min(n.Mark, off)
	}
	return nil
}
