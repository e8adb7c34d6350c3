package transfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/archive"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/file"
	"github.com/berth-vm/berth/internal/transfer/source/open"
	"github.com/berth-vm/berth/internal/transfer/volumefiles"
)

// open opens the one source that the task names.
func (t *Transfer) openSource(ctx context.Context) (source.Blob, error) {
	local := t.task.Source.Local
	if local == nil {
		return open.Open(ctx, t.task.Source)
	}
	if info, err := os.Stat(local.Path); err == nil && info.IsDir() && t.task.Target.Content == task.Archive {
		return archive.OpenDirectory(local.Path)
	}
	if local.Raw && t.task.Target.Content == task.Disk && filepath.Base(local.Path) == task.DiskFile {
		if has, err := volumefiles.HasDisk(local.Path); err != nil || !has {
			return nil, errors.Join(err, volumefiles.NoDisk(filepath.Dir(local.Path)))
		}
	}
	return openLocal(local.Path)
}

// localFile is a file or block device that the worker can open itself.
type localFile struct {
	source.Blob
	file    *os.File
	regular bool
}

func openLocal(path string) (source.Blob, error) {
	blob, err := file.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return blob, nil // it was there just now; who reads the blob will find out
	}
	info, err := f.Stat()
	return &localFile{Blob: blob, file: f, regular: err == nil && info.Mode().IsRegular()}, nil
}

// File returns the file, which the target may clone without reading it.
func (l *localFile) File() *os.File { return l.file }

// Data implements source.Sparse.
func (l *localFile) Data(ctx context.Context, from, to int64) ([][2]int64, error) {
	if !l.regular {
		return [][2]int64{{from, to - from}}, nil
	}
	return sink.DataIn(ctx, l.file, from, to)
}

// Close implements source.Blob.
func (l *localFile) Close() error {
	_ = l.file.Close() // opened for reading
	return l.Blob.Close()
}
