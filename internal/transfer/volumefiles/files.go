// Package volumefiles clones the files of a volume other than its disk, and finds whether a volume has a disk.
//
// The files are a tenant's: nothing that they name is followed. How they are carried is up to package filetree; the disk is brought as
// from any other source, by package ingest.
package volumefiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/directory"
	"github.com/berth-vm/berth/internal/transfer/filetree"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/peer"
)

// Clone is a copy of a volume's files.
type Clone struct {
	From   task.Source // a peer, or the disk's place in a directory of this machine
	Dir    string      // that they are written to
	NoDisk bool        // the volume has only files
	Record *progress.Record
}

// Run copies the files. It is not continued after a crash but begun again.
func (c Clone) Run(ctx context.Context) error {
	keep := func(name string) bool { return isOfDisk(name) }
	if c.NoDisk {
		keep = directory.Nothing
	}
	dir, err := directory.Open(c.Dir, keep)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = c.copy(ctx, dir)
	if err == nil {
		err = dir.Finish()
	}
	c.Record.Report.Written = dir.Written()
	return errors.Join(err, dir.Close())
}

// isOfDisk reports whether a name at the top of a volume belongs to the disk, or to what is kept beside it while it is brought.
func isOfDisk(name string) bool {
	return name == task.DiskFile || strings.HasPrefix(name, "."+task.DiskFile+".berth-")
}

func (c Clone) copy(ctx context.Context, dir *directory.Directory) error {
	without := task.DiskFile
	if c.NoDisk {
		without = ""
	}
	s := c.From
	if s.Peer != nil {
		in, err := peer.Files(ctx, *s.Peer)
		if err != nil {
			return err
		}
		defer in.Close() // read to its end, or abandoned on purpose
		err = filetree.Read(ctx, &metered{in, c.Record.Meter}, dir)
		switch trouble := in.Trouble(); {
		case trouble.Reason != "" && err != nil:
			return task.Errorf(trouble.Reason, "%s", trouble.Detail)
		case trouble.Detail != "" && err == nil:
			c.Record.Say(trouble.Detail)
		}
		return filetree.Broken(s.Peer.URL, err)
	}
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		left, err := filetree.Write(ctx, filetree.Source{Dir: filepath.Dir(s.Local.Path), Without: without, Plain: true}, out)
		if err == nil && len(left) > 0 {
			c.Record.Say(LeftOut(left))
		}
		out.CloseWithError(err)
		written <- err
	}()
	err := filetree.Read(ctx, &metered{in, c.Record.Meter}, dir)
	_ = in.CloseWithError(errReader)
	if wrote := <-written; wrote != nil && !errors.Is(wrote, errReader) {
		return wrote // the reader's error is only a consequence
	}
	return filetree.Broken(s.Local.Path, err)
}

var errReader = errors.New("the files are not read any more")

// LeftOut says which files no worker can make.
func LeftOut(names []string) string {
	return fmt.Sprintf("devices are left out of a copy: %s", strings.Join(names, ", "))
}

// metered counts what is read.
type metered struct {
	io.Reader
	meter *progress.Meter
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.meter.Fetched(int64(n))
	return n, err
}

// NoDisk returns the error that says that a volume has only files. It is a source.ErrNoDisk.
func NoDisk(name string) error {
	return task.Errorf(task.BadImage, "%w: %s has no file %s; a volume without one can only be cloned to a filesystem", source.ErrNoDisk, name, task.DiskFile)
}

// HasDisk reports whether the file exists and is a regular file: a link that a tenant has put in its place is not followed.
func HasDisk(path string) (bool, error) {
	info, err := os.Lstat(path)
	if err == nil {
		return info.Mode().IsRegular(), nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return false, task.Errorf(task.SourceUnreachable, "look for the disk of the volume to be cloned: %w", err)
}
