package guestdisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/sink"
)

// still is the disk of a machine that does not run, as it is in a claim.
type still struct {
	name  string
	file  *os.File
	size  int64
	block bool
	was   string // its version when it was opened
	read  *atomic.Int64
}

// openStill opens the disk of a claim. Users write to their claims: what is no disk there is refused, and no link is followed.
func openStill(name, path string, read *atomic.Int64) (*still, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, task.Errorf(task.SourceNotFound, "the claim of disk %s has no file %s", name, task.DiskFile)
	}
	if err != nil {
		return nil, task.Errorf(task.SourceUnreachable, "open disk %s: %w", name, err)
	}
	s := &still{name: name, file: f, read: read}
	info, err := f.Stat()
	if err == nil {
		s.block = info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice
		if !s.block && !info.Mode().IsRegular() {
			err = errors.New("it is neither a file nor a block device")
		}
	}
	if err == nil {
		s.size, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil && s.size == 0 {
		err = errors.New("it is empty")
	}
	if err == nil {
		s.was, err = s.version()
	}
	if err != nil {
		return nil, errors.Join(task.Errorf(task.SourceUnreachable, "look at disk %s: %w", name, err), f.Close())
	}
	return s, nil
}

// version changes when a file is written to. A device has none.
func (s *still) version() (string, error) {
	if s.block {
		return "", nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprint(st.Size, st.Mtim, st.Ctim), nil
}

// settled returns an error if the disk was written to since it was opened.
func (s *still) settled() error {
	now, err := s.version()
	if err == nil && now != s.was {
		err = errors.New("it was written to meanwhile")
	}
	if err != nil {
		return task.Errorf(task.SourceChanged, "disk %s was not read at one moment: %w", s.name, err)
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (s *still) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.file.ReadAt(p, off)
	s.read.Add(int64(n))
	if n < len(p) && err != nil && !errors.Is(err, io.EOF) {
		err = task.Errorf(task.SourceUnavailable, "read disk %s at byte %d: %w", s.name, off, err)
	}
	return n, err
}

func (s *still) extents(ctx context.Context, from, to int64) ([][2]int64, error) {
	if s.block {
		return [][2]int64{{from, to - from}}, nil
	}
	return sink.DataIn(ctx, s.file, from, to)
}

// still opens the disks of a machine that does not run. done closes them.
func (j *Job) still(_ context.Context, _ *backup.Manifest, plan *backup.Plan) (done func(), err error) {
	open, done, err := j.openAllStill()
	for _, s := range open {
		plan.Disks = append(plan.Disks, backup.Source{Name: s.name, Disk: encode.Disk{ReaderAt: s, Size: s.size, Data: s.extents}})
	}
	plan.Settled = func() error {
		for _, s := range open {
			if err := s.settled(); err != nil {
				return err
			}
		}
		return nil
	}
	return done, err
}

// openAllStill opens the disks in their claims. done closes them.
func (j *Job) openAllStill() (open []*still, done func(), err error) {
	done = func() {
		for _, s := range open {
			_ = s.file.Close() // it was only read
		}
	}
	for _, name := range j.task.Disks {
		s, err := openStill(name, j.task.Files[name], &j.read)
		if err != nil {
			return open, done, err
		}
		open = append(open, s)
		j.virtual += s.size
		j.devices[name] = s.block
	}
	return open, done, nil
}
