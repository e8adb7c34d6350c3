package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/directory"
)

// Origin is where an archive comes from.
type Origin struct {
	Name string // for messages
	// MayBeEmpty: it is made of a directory that may be empty. Any other archive without entries is refused: a disk that begins with
	// zeroes looks like one.
	MayBeEmpty bool
}

// Unpack makes all entries of the archive src in dir, and reads src to its end.
func Unpack(ctx context.Context, src io.Reader, dir *directory.Directory, from Origin) error {
	src = &stoppable{ctx, src}
	if err := from.unpack(src, dir); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, src) // padding belongs to the checksum
	return err
}

func (o Origin) unpack(src io.Reader, dir *directory.Directory) error {
	archive := tar.NewReader(src)
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 && !o.MayBeEmpty {
				return task.Errorf(task.BadImage, "%s is not a tar archive, or an empty one", o.Name)
			}
			return nil
		}
		if err == nil {
			err = unpackEntry(dir, h, archive)
		}
		if err != nil {
			return o.wrong(err)
		}
	}
}

// stoppable is a reader that ends with its context.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(p)
}

// wrong gives an error of the archive itself its reason; those of source and target have theirs.
func (o Origin) wrong(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) && !isKnown(err) || errors.Is(err, tar.ErrFieldTooLong) {
		return task.Errorf(task.BadImage, "%s is not a whole tar archive: %w", o.Name, err)
	}
	return err
}

func isKnown(err error) bool {
	var known *task.Error
	return errors.As(err, &known)
}

// unpackEntry makes one entry. Devices, pipes and sockets have no business in a volume's files.
func unpackEntry(dir *directory.Directory, h *tar.Header, r io.Reader) error {
	mode := h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return dir.File(h.Name, mode, h.ModTime, h.Size, r)
	case tar.TypeDir:
		return dir.Mkdir(h.Name, mode)
	case tar.TypeSymlink:
		return dir.Symlink(h.Name, h.Linkname)
	case tar.TypeLink:
		return dir.Link(h.Name, h.Linkname)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return task.Errorf(task.UnsafeImage, "the archive's entry %q is of type %q: only files, directories and links are unpacked", h.Name, h.Typeflag)
}
