package sink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

const (
	// noteSlot holds one note; there are two, written in turns, so that a torn write leaves the other.
	noteSlot = 128 << 10
	// tailSize is the end of a device that belongs to the notes until Finish. What the disk has there waits in memory.
	tailSize = 2 * noteSlot
	// tailMin is the smallest device that has notes at all; filling a smaller one again takes no time.
	tailMin = 8 << 20
)

// device is a disk that is a block device. Its whole size is the disk.
type device struct {
	o    Options
	w    *writer
	size int64
	// begun records that the device was changed.
	begun bool
	zero  func(off, n int64) error // makes a range read as zeroes

	tail       int64        // where the notes begin; size if there are none
	held       []byte       // what the disk has from tail on
	holding    sync.Mutex   // guards held
	reached    atomic.Int64 // the end of the last byte written
	generation uint64       // of the last note
	parking    sync.Mutex   // guards what follows
	lot        *lot
	noted      bool // there is a note that speaks of parked bytes
	ending     bool // some of them were forgotten
}

func openDevice(o Options) (*device, error) {
	h, err := os.OpenFile(o.Path, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, Failed(fmt.Errorf("open the target device: %w", err))
	}
	size, err := h.Seek(0, 2) // a device's end is its size, without an ioctl
	if err != nil {
		_ = h.Close()
		return nil, Failed(fmt.Errorf("measure the target device: %w", err))
	}
	d := newDevice(o, h, size)
	d.zero = d.zeroDevice
	return d, nil
}

// newDevice makes a disk of an open file of a fixed size.
func newDevice(o Options, h *os.File, size int64) *device {
	d := &device{o: o, w: newWriter(h, o.Path), size: size, tail: size}
	if size >= tailMin {
		d.tail = (size - tailSize) &^ (zeropage.Size - 1)
	}
	d.held = make([]byte, size-d.tail)
	return d
}

// zeroDevice zeroes a range in the cheapest way that is sure to read back zeroes. Only devices that guarantee this offer to
// release the blocks; a plain discard does not guarantee it and is not used. With preallocation the blocks have to be there
// afterwards: the device is asked to write zeroes without releasing anything (what the ioctl BLKZEROOUT does too), and the kernel
// writes them if the device cannot. Where the kernel does neither, they are written from here.
func (d *device) zeroDevice(off, n int64) error {
	mode := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
	if d.o.Preallocate {
		mode = unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
	}
	pages := n &^ (zeropage.Size - 1)
	if off%zeropage.Size == 0 && pages > 0 {
		err := unix.Fallocate(int(d.w.file.Fd()), mode, off, pages)
		for errors.Is(err, syscall.EINTR) {
			err = unix.Fallocate(int(d.w.file.Fd()), mode, off, pages)
		}
		if err == nil {
			off, n = off+pages, n-pages
		}
	}
	return d.writeZeroes(off, n)
}

// writeZeroes zeroes the blocks that are not zero already: reading is cheaper than writing, and blocks that a thin device never
// allocated stay unallocated. With preallocation everything is written.
func (d *device) writeZeroes(off, n int64) error {
	buf, zeroes := make([]byte, bounceSize), make([]byte, bounceSize)
	for end := off + n; off < end; off += bounceSize {
		p := buf[:min(bounceSize, end-off)]
		if !d.o.Preallocate {
			if err := d.read(p, off); err != nil {
				return err
			}
			if zeropage.IsZero(p) {
				continue
			}
		}
		if err := d.w.write(zeroes[:len(p)], off); err != nil {
			return err
		}
	}
	return nil
}

// read bypasses the page cache where possible, so that reading a whole device does not fill the cache.
func (d *device) read(p []byte, off int64) error {
	if direct := d.w.direct.Load(); direct != nil && off%zeropage.Size == 0 && len(p)%zeropage.Size == 0 {
		if _, err := direct.ReadAt(p, off); err == nil {
			return nil
		}
	}
	_, err := d.w.file.ReadAt(p, off)
	return Failed(err)
}

// Limit implements Disk.
func (d *device) Limit() (int64, error) { return d.size, nil }

// zeroStep is how many bytes of a device are zeroed by one call, which cannot be interrupted: seconds on a slow one.
const zeroStep = 256 << 20

// Begin implements Disk.
func (d *device) Begin(size int64, resume bool) error {
	if err := d.Resize(size); err != nil {
		return err
	}
	if d.o.Size > d.size {
		return task.Errorf(task.DoesNotFit, "a disk of %d bytes was asked for, but the device has %d", d.o.Size, d.size)
	}
	d.begun = true
	if resume {
		d.parking.Lock()
		defer d.parking.Unlock()
		return d.resumeLot()
	}
	d.lot = newLot(d.tail)
	for off := int64(0); off < d.size; off += zeroStep {
		n := min(zeroStep, d.size-off)
		if err := d.zero(off, n); err != nil {
			return fmt.Errorf("zero the device: %w", err)
		}
		if d.o.Zeroed == nil {
			continue
		}
		if err := d.o.Zeroed(off + n); err != nil {
			return err
		}
	}
	return d.Sync()
}

// Resize implements Disk.
func (d *device) Resize(size int64) error {
	if size > d.size {
		return task.Errorf(task.DoesNotFit, "a disk of %d bytes on a device of %d", size, d.size)
	}
	end := d.reached.Load()
	if end <= size || size < 0 {
		return nil
	}
	if front := min(end, d.tail); front > size {
		if err := d.writeZeroes(size, front-size); err != nil {
			return err
		}
	}
	if end > d.tail {
		clear(d.held[max(0, size-d.tail):])
	}
	return nil
}

func (d *device) Size() int64    { return d.size }
func (d *device) Tail() int64    { return d.tail }
func (d *device) Sync() error    { return d.w.sync() }
func (d *device) Close() error   { return d.w.close() }
func (d *device) Written() int64 { return d.w.written.Load() }

// WriteAt implements Disk.
func (d *device) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if off < 0 || end > d.size {
		return 0, outside(p, off, d.size)
	}
	for old := d.reached.Load(); old < end && !d.reached.CompareAndSwap(old, end); old = d.reached.Load() {
	}
	front := p
	if end > d.tail {
		split := max(0, d.tail-off)
		front = p[:split]
		d.holding.Lock()
		copy(d.held[off+split-d.tail:], p[split:])
		d.holding.Unlock()
	}
	if err := d.vacate(off, int64(len(front))); err != nil {
		return 0, err
	}
	if err := d.w.writePages(front, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadAt implements Disk.
func (d *device) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > d.size {
		return 0, fmt.Errorf("read %d bytes at %d of a device of %d", len(p), off, d.size)
	}
	front := p
	if end := off + int64(len(p)); end > d.tail {
		split := max(0, d.tail-off)
		front = p[:split]
		d.holding.Lock()
		copy(p[split:], d.held[off+split-d.tail:])
		d.holding.Unlock()
	}
	if len(front) > 0 {
		if _, err := d.w.file.ReadAt(front, off); err != nil {
			return 0, Failed(err)
		}
	}
	return len(p), nil
}

// Finish implements Disk. The tail of the disk overwrites the notes; from then on there is nothing to resume.
func (d *device) Finish() error {
	if err := d.clearLot(); err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if _, err := d.w.file.WriteAt(d.held, d.tail); err != nil {
		return Failed(fmt.Errorf("write the end of the disk: %w", err))
	}
	d.w.written.Add(int64(len(d.held)))
	return d.Sync()
}

// Discard implements Disk. A device cannot be emptied at once; without a note its content does not count. The old content stays if
// this run ended before Begin.
func (d *device) Discard() error {
	if !d.begun && d.generation == 0 {
		return nil
	}
	return d.Save(nil)
}

// Note implements Checkpoint. The table of parked bytes follows the caller's note.
func (d *device) Note() ([]byte, error) {
	if d.tail == d.size {
		return nil, nil
	}
	var newest []byte
	slot := make([]byte, noteSlot)
	for i := range int64(2) {
		if _, err := d.w.file.ReadAt(slot, d.tail+i*noteSlot); err != nil {
			return nil, Failed(fmt.Errorf("look for a checkpoint: %w", err))
		}
		note, generation, err := unsealGeneration(bytes.NewReader(slot))
		if err != nil {
			return nil, err
		}
		if note != nil && generation > d.generation {
			newest, d.generation = bytes.Clone(note), generation
		}
	}
	if len(newest) < 4 {
		return nil, nil
	}
	size := binary.BigEndian.Uint32(newest)
	if int64(size) > int64(len(newest)-4) {
		return nil, nil
	}
	d.parking.Lock()
	defer d.parking.Unlock()
	d.lot = newLot(d.tail)
	parked := newest[4+size:]
	if len(parked) == 0 {
		d.lot = nil // nothing was parked, and what the disk has written is not recorded: nothing can be parked any more
	} else if d.lot.restore(parked) != nil {
		d.lot = nil
		return nil, nil
	}
	d.noted = d.lot != nil
	return newest[4 : 4+size], nil
}

// Save implements Checkpoint.
func (d *device) Save(note []byte) error {
	d.parking.Lock()
	defer d.parking.Unlock()
	return d.save(note)
}

// save implements Save; the caller holds d.parking, so that the table of parked bytes cannot change.
func (d *device) save(note []byte) error {
	if d.tail == d.size {
		return nil
	}
	if note == nil {
		_, err := d.w.file.WriteAt(make([]byte, 2*noteSlot), d.tail)
		return errors.Join(Failed(err), d.Sync())
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(note)))
	b = append(b, note...)
	if d.ending {
		return errors.New("nothing can be noted after parked bytes were forgotten")
	}
	if d.lot != nil && d.lot.end > 0 {
		if err := d.writeLast(); err != nil {
			return err
		}
		if err := d.Sync(); err != nil {
			return err
		}
		parked, err := d.lot.save()
		if err != nil {
			return err
		}
		b = append(b, parked...)
	}
	sealed := seal(b, d.generation+1)
	if len(sealed) > noteSlot {
		return fmt.Errorf("checkpoint of %d bytes is larger than %d", len(sealed), noteSlot)
	}
	d.generation++
	if _, err := d.w.file.WriteAt(sealed, d.tail+int64(d.generation%2)*noteSlot); err != nil {
		return Failed(fmt.Errorf("write the checkpoint: %w", err))
	}
	d.noted = d.lot != nil && d.lot.end > 0
	return d.Sync()
}
