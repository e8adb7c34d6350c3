package transfer

import (
	"archive/tar"
	"context"
	"errors"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/directory"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// unpack reads a tar archive, compressed or not, and unpacks it into a directory. It is not continued after a crash but begun
// again, on an empty directory if it is on a claim.
func (t *Transfer) unpack(ctx context.Context, blob source.Blob, sum *checksum) error {
	var keep func(string) bool // everything, of a directory that was named explicitly
	if t.task.Claim != "" {
		keep = directory.Nothing // the claim was made for this, and holds what an earlier try left
	}
	dir, err := directory.Open(t.task.Target.Path, keep)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	i := &importing{Transfer: t, blob: blob, info: blob.Info(), sum: sum}
	s := &stream{importing: i}
	err = s.unpack(ctx, dir)
	s.close()
	t.report.Written = dir.Written()
	return errors.Join(err, dir.Close())
}

func (s *stream) unpack(ctx context.Context, dir *directory.Directory) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.report.Format = "tar"
	if s.wrap != decode.None {
		s.report.Format += "." + string(s.wrap)
	}
	src := &stoppable{ctx, s.dec}
	if err := s.entries(src, dir); err != nil {
		return err
	}
	for _, rest := range []io.Reader{src, s.feed} { // padding belongs to the checksum
		if _, err := io.Copy(io.Discard, rest); err != nil {
			return err
		}
	}
	if s.sum != nil {
		s.report.Digest = s.sum.digest()
		if err := s.sum.check(s.info.Name); err != nil {
			return err
		}
	}
	s.meter.enter(task.Flushing, 0)
	return dir.Finish()
}

// entries unpacks all entries. An archive without entries is refused unless it comes from a directory that may be empty: a disk
// that begins with zeroes looks like one.
func (s *stream) entries(src io.Reader, dir *directory.Directory) error {
	archive := tar.NewReader(src)
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 && s.task.Source.Local == nil && s.task.Source.Peer == nil {
				return task.Errorf(task.BadImage, "%s is not a tar archive, or an empty one", s.info.Name)
			}
			return nil
		}
		if err == nil {
			err = unpackEntry(dir, h, archive)
		}
		if err != nil {
			return s.tarError(err)
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

// tarError gives an error of the archive itself its reason; those of source and target have theirs.
func (s *stream) tarError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) && !isKnown(err) || errors.Is(err, tar.ErrFieldTooLong) {
		return task.Errorf(task.BadImage, "%s is not a whole tar archive: %w", s.info.Name, err)
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
