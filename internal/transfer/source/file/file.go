// Package file reads an image that the worker can open itself: a file or a block device. It does not look for a format
// in it and does not copy files into files (sinks have faster ways for that).
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
)

// Open opens the file or block device at path.
func Open(path string) (source.Blob, error) {
	f, err := os.Open(path)
	return opened(path, f, err)
}

// OpenIn opens the file at a path below root. A link in it leads nowhere else.
func OpenIn(root *os.Root, path string) (source.Blob, error) {
	f, err := root.Open(path)
	return opened(path, f, err)
}

func opened(path string, f *os.File, err error) (source.Blob, error) {
	if err != nil {
		return nil, explain(path, err)
	}
	b, err := fromFile(path, f)
	if err != nil {
		_ = f.Close() // it was only looked at
		return nil, err
	}
	return b, nil
}

func fromFile(path string, f *os.File) (source.Blob, error) {
	version, size, err := state(f)
	if err != nil {
		return nil, explain(path, err)
	}
	return &blob{file: f, info: source.Info{Name: path, Size: size, Ranged: true, Version: version}}, nil
}

// explain gives an error of the operating system its reason.
func explain(path string, err error) error {
	var known *task.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return task.Errorf(task.SourceNotFound, "open source: %w", err)
	case errors.Is(err, fs.ErrPermission):
		return task.Errorf(task.SourceDenied, "open source: %w", err)
	}
	return task.Errorf(task.SourceUnreachable, "read %s: %w", path, err)
}

// state returns the version and size of an open file. The version of a block device is empty: it has no time of change.
func state(f *os.File) (version string, size int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	switch mode := st.Mode(); {
	case mode.IsRegular():
		inode := uint64(0)
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			inode = sys.Ino
		}
		return fmt.Sprintf("file:%d/%d/%d", inode, st.Size(), st.ModTime().UnixNano()), st.Size(), nil
	case mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0:
		size, err = f.Seek(0, io.SeekEnd)
		return "", size, err
	}
	return "", 0, task.Errorf(task.BadTask, "%s is neither a file nor a block device but %s", f.Name(), st.Mode().Type())
}

type blob struct {
	file *os.File
	info source.Info
	seek sync.Mutex // the file has one position
}

func (b *blob) Info() source.Info { return b.info }
func (b *blob) Close() error      { return b.file.Close() }

func (b *blob) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := b.info.Span(off, n)
	if err != nil {
		return nil, err
	}
	if err := b.unchanged(); err != nil {
		return nil, err
	}
	return &reader{blob: b, ctx: ctx, off: off, end: off + n}, nil
}

func (b *blob) unchanged() error {
	version, size, err := state(b.file)
	if err != nil {
		return explain(b.info.Name, err)
	}
	if version != b.info.Version || size != b.info.Size {
		return fault.Changed(b.info.Name, fmt.Sprintf("it was %s with %d bytes and is now %s with %d", b.info.Version,
			b.info.Size, version, size))
	}
	return nil
}

// reader reads [off, end). The version is checked again at the end, when everything read before is proven by it.
type reader struct {
	blob     *blob
	ctx      context.Context
	off, end int64
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if r.off == r.end {
		if err := r.blob.unchanged(); err != nil {
			return 0, err
		}
		return 0, io.EOF
	}
	n, err := r.blob.file.ReadAt(p[:min(int64(len(p)), r.end-r.off)], r.off)
	r.off += int64(n)
	switch {
	case err == nil, n > 0: // an error shows again where the bytes end
		return n, nil
	case errors.Is(err, io.EOF):
		return 0, fault.Truncated(r.blob.info.Name, r.off, r.end)
	}
	return 0, explain(r.blob.info.Name, err)
}

func (r *reader) Close() error { return nil }
