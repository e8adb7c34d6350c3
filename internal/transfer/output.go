package transfer

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// output is the disk as a decoder of a stream sees it. Plain extents are written at once; coded ones are expanded by
// workers of their own, because one core is busy with the stream already.
type output struct {
	disk sink.Disk
	// On a device, parked bytes must not be read during a write that moves them; the sink ensures that.
	sink.Parking
	begin func(size int64) error
	limit int64 // of the disk
	// reached is the end of the last byte put.
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

// outputDepth bounds the coded extents under way: of 64 KiB as a rule, of maxCoded at worst.
const outputDepth = 8

func newOutput(target sink.Target, limit int64, begin func(size int64) error) *output {
	o := &output{disk: target, Parking: target, begin: begin, limit: limit}
	o.spare = make(chan []byte, outputDepth)
	for range outputDepth {
		o.spare <- nil
	}
	return o
}

// Begin implements format.Output.
func (o *output) Begin(size int64) error { return o.begin(size) }

// Put implements format.Output.
func (o *output) Put(e format.Extent, p []byte) error {
	if e.Guest < 0 || e.Size < 0 || e.Guest > o.limit-e.Size {
		return task.Errorf(task.DoesNotFit, "virtual image size is larger than the reported available storage %d (data belongs at byte %d). A larger PVC is required",
			o.limit, e.Guest+e.Size)
	}
	o.reached = max(o.reached, e.Guest+e.Size)
	if e.Coding == format.Plain {
		_, err := o.disk.WriteAt(p, e.Guest)
		return err
	}
	if e.Stored > maxCoded {
		return badExtent(e, fmt.Errorf("it takes more than %d bytes", maxCoded))
	}
	if o.jobs == nil {
		o.start()
	}
	buf := <-o.spare
	if cap(buf) < len(p) {
		buf = make([]byte, len(p))
	}
	buf = buf[:cap(buf)]
	o.open.Add(1)
	o.jobs <- job{e, buf[:copy(buf, p)], buf}
	return o.failed()
}

func (o *output) start() {
	o.jobs = make(chan job, outputDepth)
	for range runtime.GOMAXPROCS(0) {
		o.work.Go(func() {
			x := newExpander()
			defer x.close()
			for j := range o.jobs {
				p, err := x.expand(j.e, j.p)
				if err == nil {
					_, err = o.disk.WriteAt(p, j.e.Guest)
				}
				o.mu.Lock()
				if o.err == nil {
					o.err = err
				}
				o.mu.Unlock()
				o.spare <- j.buf
				o.open.Done()
			}
		})
	}
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// settle waits until all data that was put is written.
func (o *output) settle() error {
	o.open.Wait()
	return o.failed()
}

// close ends the workers.
func (o *output) close() {
	if o.jobs != nil {
		close(o.jobs)
		o.work.Wait()
		o.jobs = nil
	}
}
