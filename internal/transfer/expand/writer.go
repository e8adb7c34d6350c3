package expand

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// Writer is the disk as a decoder of a stream sees it. Plain extents are written at once; coded ones are expanded by
// workers of their own, because one core is busy with the stream already.
type Writer struct {
	disk sink.Disk
	// On a device, parked bytes must not be read during a write that moves them; the sink ensures that.
	sink.Parking
	begin   func(size int64) error
	limit   int64 // of the disk
	reached int64

	jobs  chan job
	spare chan []byte // buffers for jobs
	work  sync.WaitGroup
	open  sync.WaitGroup // jobs under way
	mu    sync.Mutex
	err   error
}

type job struct {
	e   format.Extent
	p   []byte
	buf []byte
}

// depth bounds the coded extents under way: of 64 KiB as a rule, of Most at worst.
const depth = 8

// NewWriter makes the writer of a disk of at most limit bytes. begin is called before any data is put, with the size of the image, or a
// negative one if only the end of the stream tells it.
func NewWriter(target sink.Target, limit int64, begin func(size int64) error) *Writer {
	w := &Writer{disk: target, Parking: target, begin: begin, limit: limit}
	w.spare = make(chan []byte, depth)
	for range depth {
		w.spare <- nil
	}
	return w
}

// Begin implements format.Output.
func (w *Writer) Begin(size int64) error {
	err := w.begin(size)
	if size >= 0 {
		w.limit = size
	}
	return err
}

// Put implements format.Output.
func (w *Writer) Put(e format.Extent, p []byte) error {
	if e.Guest < 0 || e.Size < 0 || e.Guest > w.limit-e.Size {
		return task.Errorf(task.DoesNotFit, "virtual image size is larger than the reported available storage %d (data belongs at byte %d). A larger PVC is required",
			w.limit, e.Guest+e.Size)
	}
	w.reached = max(w.reached, e.Guest+e.Size)
	if e.Coding == format.Plain {
		_, err := w.disk.WriteAt(p, e.Guest)
		return err
	}
	if e.Stored > Most {
		return Damaged(e, fmt.Errorf("it takes more than %d bytes", Most))
	}
	if w.jobs == nil {
		w.start()
	}
	buf := <-w.spare
	if cap(buf) < len(p) {
		buf = make([]byte, len(p))
	}
	buf = buf[:cap(buf)]
	w.open.Add(1)
	w.jobs <- job{e, buf[:copy(buf, p)], buf}
	return w.failed()
}

func (w *Writer) start() {
	w.jobs = make(chan job, depth)
	for range runtime.GOMAXPROCS(0) {
		w.work.Go(func() {
			x := New()
			defer x.Close()
			for j := range w.jobs {
				p, err := x.Expand(j.e, j.p)
				if err == nil {
					_, err = w.disk.WriteAt(p, j.e.Guest)
				}
				w.mu.Lock()
				if w.err == nil {
					w.err = err
				}
				w.mu.Unlock()
				w.spare <- j.buf
				w.open.Done()
			}
		})
	}
}

// Reached returns the end of the last byte put.
func (w *Writer) Reached() int64 { return w.reached }

func (w *Writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Settle waits until all data that was put is written.
func (w *Writer) Settle() error {
	w.open.Wait()
	return w.failed()
}

// Close ends the workers.
func (w *Writer) Close() {
	if w.jobs != nil {
		close(w.jobs)
		w.work.Wait()
		w.jobs = nil
	}
}
