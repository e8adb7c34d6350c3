// Package archive packs the files of a directory into a tar archive, and unpacks archives into directories.
//
// Archives are untrusted: only files, directories and links are unpacked, and package directory keeps them inside. The package does not
// know compression, nor whole volumes with a disk (package volumefiles).
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/directory"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Pack writes the files below dir as a tar stream, in the order of their names. Links are not followed; devices, pipes
// and sockets are left out, as Unpack would refuse them.
func Pack(ctx context.Context, dir string, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the directory to be cloned: %w", err)
	}
	defer root.Close() // opened for reading
	archive := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." {
			return err
		}
		if directory.IsOurs(name) || name == "lost+found" { // of this program and of the filesystem, not the volume's content
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return packEntry(archive, root, name, d)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return archive.Close()
}

func packEntry(archive *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir():
	case mode&fs.ModeSymlink != 0:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	default:
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Format = "./"+name, tar.FormatPAX // as tar names the files of its own directory
	if info.IsDir() {
		h.Name += "/"
	}
	if err := archive.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading
	_, err = io.CopyN(archive, f, h.Size)
	return err
}

// packed is the source of an archive that is made of a directory of this machine.
type packed struct{ path string }

// OpenDirectory returns a directory as the source of an archive.
func OpenDirectory(path string) (source.Blob, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, task.Errorf(task.SourceNotFound, "open the directory to be cloned: %w", err)
	case err != nil:
		return nil, task.Errorf(task.SourceUnreachable, "open the directory to be cloned: %w", err)
	case !info.IsDir():
		return nil, task.Errorf(task.BadTask, "%s is not a directory", filepath.Clean(path))
	}
	return packed{path}, nil
}

func (d packed) Info() source.Info { return source.Info{Name: d.path, Size: -1} }
func (d packed) Close() error      { return nil }

// Open implements source.Blob: a tar stream of the directory.
func (d packed) Open(ctx context.Context, _, _ int64) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(Pack(ctx, d.path, w)) }()
	return r, nil
}
