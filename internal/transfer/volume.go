package transfer

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
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/filetree"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/peer"
)

// A volume is cloned with all its files: first the others, then the disk among them, if there is one, as from any other source. So
// a disk that is being copied, and one that a guest uses meanwhile, has its files beside it.

// asDisk returns a task for a whole volume as one for the disk on it, and the directory of the rest; empty if the task is no
// such.
func asDisk(t task.Task) (disk task.Task, dir string) {
	if t.Target.Content != task.Volume {
		return t, ""
	}
	dir = t.Target.Path
	t.Target.Content, t.Target.Path = task.Disk, filepath.Join(dir, task.DiskFile)
	return t, dir
}

// volume brings a whole volume.
func (t *Transfer) volume(ctx context.Context) error {
	if done, err := t.serveWhole(ctx); done || err != nil {
		return err
	}
	blob, err := t.openSource(ctx)
	diskless := errors.Is(err, source.ErrNoDisk)
	if err != nil && !diskless {
		return t.condemn(ctx, err)
	}
	if blob != nil {
		defer blob.Close() // read to its end, or abandoned on purpose
	}
	at, err := earlyboot.Recall(t.task.Target.Path, t.task.Claim)
	switch {
	case err != nil:
		return err
	case at != nil && diskless:
		return t.condemn(ctx, task.Errorf(task.SourceChanged, "the source has no disk any more, and a guest has used what there is of it"))
	case at == nil: // else the files came before the guest had the disk
		if err := t.files(ctx, diskless); err != nil {
			return err
		}
	}
	if diskless {
		t.report.Format = "files"
		if t.task.Early {
			t.say("no machine can use it: it has no disk")
			t.meter.serves(func() task.Early { return task.Early{Cannot: "it has no disk"} })
		}
		return nil
	}
	return t.bring(ctx, blob)
}

// files copies the files of the volume other than its disk. It is not continued after a crash but begun again.
func (t *Transfer) files(ctx context.Context, diskless bool) error {
	keep := func(name string) bool { return isOfDisk(name) }
	if diskless {
		keep = directory.Nothing
	}
	dir, err := directory.Open(t.dir, keep)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = t.copyFiles(ctx, dir, diskless)
	if err == nil {
		err = dir.Finish()
	}
	t.fileBytes = dir.Written()
	t.report.Written = t.fileBytes
	return errors.Join(err, dir.Close())
}

// isOfDisk reports whether a name at the top of a volume belongs to the disk, or to what is kept beside it while it is brought.
func isOfDisk(name string) bool {
	return name == task.DiskFile || strings.HasPrefix(name, "."+task.DiskFile+".berth-")
}

func (t *Transfer) copyFiles(ctx context.Context, dir *directory.Directory, diskless bool) error {
	without := task.DiskFile
	if diskless {
		without = ""
	}
	s := t.task.Source
	if s.Peer != nil {
		in, err := peer.Files(ctx, *s.Peer)
		if err != nil {
			return err
		}
		defer in.Close() // read to its end, or abandoned on purpose
		err = filetree.Read(ctx, &metered{in, t.meter}, dir)
		switch trouble := in.Trouble(); {
		case trouble.Reason != "" && err != nil:
			return task.Errorf(trouble.Reason, "%s", trouble.Detail)
		case trouble.Detail != "" && err == nil:
			t.say(trouble.Detail)
		}
		return filetree.Broken(s.Peer.URL, err)
	}
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		left, err := filetree.Write(ctx, filetree.Source{Dir: filepath.Dir(s.Local.Path), Without: without, Plain: true}, out)
		if err == nil && len(left) > 0 {
			t.say(leftOut(left))
		}
		out.CloseWithError(err)
		written <- err
	}()
	err := filetree.Read(ctx, &metered{in, t.meter}, dir)
	_ = in.CloseWithError(errReader)
	if wrote := <-written; wrote != nil && !errors.Is(wrote, errReader) {
		return wrote // the reader's error is only a consequence
	}
	return filetree.Broken(s.Local.Path, err)
}

var errReader = errors.New("the files are not read any more")

func leftOut(names []string) string {
	return fmt.Sprintf("devices are left out of a copy: %s", strings.Join(names, ", "))
}

// metered counts what is read.
type metered struct {
	io.Reader
	meter *meter
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.meter.read(int64(n))
	return n, err
}

// errNoDisk says that a volume has only files.
func errNoDisk(name string) error {
	return task.Errorf(task.BadImage, "%w: %s has no file %s; a volume without one can only be cloned to a filesystem", source.ErrNoDisk, name, task.DiskFile)
}

// hasDisk reports whether the file exists and is a regular file: a link that a tenant has put in its place is not followed.
func hasDisk(path string) (bool, error) {
	info, err := os.Lstat(path)
	if err == nil {
		return info.Mode().IsRegular(), nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return false, task.Errorf(task.SourceUnreachable, "look for the disk of the volume to be cloned: %w", err)
}
