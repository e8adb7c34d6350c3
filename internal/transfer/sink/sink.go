// Package sink writes a disk to a file or a block device. It makes written data durable and all other ranges zero; it does not know
// where the bytes come from or what format they had.
package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/berth-vm/berth/internal/task"
)

// Target is the place where a guest's disk is made: the disk itself, and space beside it for temporary data. WriteAt is safe for
// concurrent use on disjoint ranges; the rest is for one goroutine at a time.
type Target interface {
	Disk
	Checkpoint
	Parking
}

// Disk is the guest's disk while it is written.
type Disk interface {
	// WriteAt writes p at off. It finds the zero pages of p and leaves them unwritten, because Begin made everything
	// zero.
	WriteAt(p []byte, off int64) (int, error)
	ReadAt(p []byte, off int64) (int, error)
	// Limit returns the size of the largest disk that this target can hold, in bytes.
	Limit() (int64, error)
	// Begin prepares for an image of this size, or of one up to Limit that Resize will say if size is negative.
	// Afterwards everything that is not written reads as zeroes; with resume set, what an earlier run wrote is kept, and
	// ErrFinished means that it wrote everything.
	Begin(size int64, resume bool) error
	// Resize says how large the image turned out to be, after a Begin that did not know.
	Resize(size int64) error
	// Size is the disk's size, which is at least the image's.
	Size() int64
	// Clone makes the disk, right after a Begin that did not resume, a copy of src without moving bytes through this
	// process, as large as src. It is errors.ErrUnsupported if these two cannot, and then nothing was changed.
	Clone(ctx context.Context, src *os.File) error
	// Sync makes all writes durable, except those behind Tail.
	Sync() error
	// Finish gives the disk its final size and makes it durable, under its final name, and removes the note and what is
	// parked. Until Finish returns, nothing at the target can be taken for a finished disk.
	Finish() error
	// Discard gives up: it removes the written data, as far as the target can do that at once.
	Discard() error
	Close() error
	// Written counts the bytes written to the target by this run.
	Written() int64
}

// Checkpoint is the note from which a later run continues.
type Checkpoint interface {
	// Note returns the note that the last Save of an earlier run wrote; nil if there is none, or only a part of one.
	Note() ([]byte, error)
	// Save stores a note until the next Save, or until Finish removes it. After a crash during Save, Note returns the one before.
	// Before Begin it may be called only with nil, which removes the note.
	Save(note []byte) error
	// Tail is the offset from which on the disk is kept in memory until Finish, because the note is stored there meanwhile. A note
	// must not claim bytes from Tail on, because they would be lost.
	Tail() int64
}

// Parking is room for bytes whose place on the disk is not known yet.
type Parking interface {
	// Park keeps p outside the disk and returns its number; Parked reads it back.
	Park(p []byte) (at int64, err error)
	Parked(p []byte, at int64) error
	// Forget says that n parked bytes from number at on are not needed any more, so that their room can be used.
	Forget(at, n int64)
	// Unpark forgets what was parked from number n on: before Begin resumes, what came after the note. It is an error if
	// there are fewer.
	Unpark(n int64) error
}

// Shared is a Disk that its guest may use while it is filled.
type Shared interface {
	Disk
	// Again opens the disk once more, after Begin, for a caller that writes zeroes too. The caller closes it.
	Again() (*os.File, error)
}

// Options are the properties of a target.
type Options struct {
	Path        string
	Size        int64 // of the disk at the end; 0 is as large as the image
	Preallocate bool
	// Zeroed is called with how much of a device reads as zeroes while Begin zeroes it; Begin ends with its error. It may be nil.
	Zeroed func(done int64) error
}

// OptionsFor returns the options for the target of a task.
func OptionsFor(t task.Target) Options {
	return Options{Path: t.Path, Size: t.Size, Preallocate: t.Preallocate}
}

// Fits returns an error if an image's disk does not fit the target; its first sentence is a text clients know.
func Fits(virtual, limit int64) error {
	if virtual <= limit {
		return nil
	}
	return task.Errorf(task.DoesNotFit, "virtual image size %d is larger than the reported available storage %d. A larger PVC is required", virtual, limit)
}

// ErrFinished is returned by Begin if an earlier run finished the disk, but for removing its checkpoint.
var ErrFinished = errors.New("the disk is finished already")

// Open opens the target at o.Path: a block device if there is one, a file otherwise. It does not change it.
func Open(o Options) (Target, error) {
	info, err := os.Stat(o.Path)
	switch {
	case err == nil && info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0:
		return openDevice(o)
	case err == nil && !info.Mode().IsRegular():
		return nil, task.Errorf(task.BadTask, "target %s is neither a block device nor a file (%v)", o.Path, info.Mode().Type())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, Failed(fmt.Errorf("look at target: %w", err))
	}
	return openFile(o)
}

// Failed gives an error of the target its reason.
func Failed(err error) error {
	var e *task.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, syscall.EBUSY):
		return &task.Error{Reason: task.TargetBusy, Err: err}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return task.Errorf(task.DoesNotFit, "%w: the volume is full; ask for a larger one", err)
	}
	return &task.Error{Reason: task.TargetFailed, Err: err}
}
