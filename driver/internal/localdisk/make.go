package localdisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// make makes a volume or snapshot: its image from source or empty, its filesystem if it begins with none, its record; then
// moves it into place. Until the rename nothing of it is visible, after it everything is.
func (p *pool) make(ctx context.Context, r *record, bytes int64, source *disk) (*disk, error) {
	i, err := parseID(kindOf(r.ID), r.ID)
	if err != nil {
		return nil, err
	}
	making := filepath.Join(p.Dir, dirMaking, string(i.kind)+"-"+i.key)
	if err := os.RemoveAll(making); err != nil { // an earlier try that ended with an error it could not clean up after
		return nil, err
	}
	if err := os.Mkdir(making, 0o700); err != nil {
		return nil, err
	}
	p.reached("make: directory")
	err = p.fill(ctx, making, r, bytes, source)
	if err == nil {
		p.reached("make: record")
		err = os.Rename(making, p.dir(i))
	}
	if err != nil {
		if rerr := os.RemoveAll(making); rerr != nil {
			p.log.Warn("what could not be made stays until the next start", "path", making, "error", rerr)
		}
		return nil, p.explainFull(err, bytes)
	}
	p.reached("make: moved")
	if err := errors.Join(syncDir(filepath.Dir(p.dir(i))), syncDir(filepath.Dir(making))); err != nil {
		return nil, err
	}
	p.reached("make: lasting")
	return p.find(i)
}

func kindOf(handle string) kind {
	if m := idPattern.FindStringSubmatch(handle); m != nil {
		return kind(m[1])
	}
	return kindVolume
}

// fill makes what is in the directory of a volume or snapshot.
func (p *pool) fill(ctx context.Context, dir string, r *record, bytes int64, source *disk) error {
	path := filepath.Join(dir, fileImage)
	image, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer image.Close()
	p.reached("make: image")
	if source != nil {
		if err := p.copyFrom(ctx, image, source); err != nil {
			return err
		}
		p.reached("make: copied")
	}
	if err := resize(image, bytes, r.Preallocated); err != nil {
		return err
	}
	p.reached("make: sized")
	if r.Mode == modeFilesystem && source == nil {
		if err := format(ctx, r.FSType, path); err != nil {
			return err
		}
		p.reached("make: formatted")
	}
	if err := image.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return writeRecord(filepath.Join(dir, fileRecord), r)
}

// copyFrom gives image the bytes of source as they are at one moment.
func (p *pool) copyFrom(ctx context.Context, image *os.File, source *disk) error {
	from, err := os.Open(p.image(source.id))
	if err != nil {
		return err
	}
	defer from.Close()
	if source.id.kind == kindVolume {
		if err := p.settle(source); err != nil {
			return err
		}
	}
	if p.reflink {
		if err := unix.IoctlFileClone(int(image.Fd()), int(from.Fd())); err != nil {
			return fmt.Errorf("clone %s: %w", from.Name(), err)
		}
		return nil
	}
	if err := sparseCopy(ctx, image, from); err != nil {
		return fmt.Errorf("copy %s: %w", from.Name(), err)
	}
	return nil
}

// settle brings what users of a volume have written to its image. A copy that takes time would not be of one moment, so
// without shared blocks a volume in use is refused.
func (p *pool) settle(source *disk) error {
	dev, err := p.attached(source.id)
	if err != nil || dev == nil {
		return err
	}
	defer dev.close()
	if !p.reflink {
		return status.Errorf(codes.FailedPrecondition,
			"volume %s is in use, and the pool's filesystem on node %s cannot share blocks (XFS can): "+
				"stop what uses the volume, or put the pool on XFS", source.ID, p.Node)
	}
	mounts, err := mountsOf(dev)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.device == dev.number() {
			if err := syncFilesystem(m.point); err != nil {
				return err
			}
			break
		}
	}
	if err := dev.file.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", dev.path(), err)
	}
	return nil
}

func syncFilesystem(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync filesystem %s: %w", path, err)
	}
	return nil
}

// copyStep is how much is copied between two looks at the context: below 100 ms on a disk of 1 GB/s.
const copyStep = 64 << 20

// sparseCopy copies the data of a file and leaves its holes holes.
func sparseCopy(ctx context.Context, to, from *os.File) error {
	st, err := from.Stat()
	if err != nil {
		return err
	}
	end := st.Size()
	for at := int64(0); at < end; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole follows
			break
		}
		if err != nil {
			return err
		}
		hole, err := from.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for at = data; at < hole; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := copyRange(to, from, at, min(hole-at, copyStep))
			if err != nil {
				return err
			}
			at += n
		}
	}
	return to.Truncate(end)
}

// copyRange copies some bytes at one offset, in the kernel if it can.
func copyRange(to, from *os.File, at, length int64) (int64, error) {
	in, out := at, at
	n, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, int(length), 0)
	switch {
	case err == nil && n > 0:
		return int64(n), nil
	case err == nil:
		return 0, io.ErrUnexpectedEOF
	case errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
		return io.Copy(io.NewOffsetWriter(to, at), io.NewSectionReader(from, at, length))
	}
	return 0, err
}

// explainFull turns a full filesystem into the answer that the specification has for it.
func (p *pool) explainFull(err error, bytes int64) error {
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	r, merr := p.measure()
	if merr != nil {
		return errors.Join(err, merr)
	}
	return status.Errorf(codes.ResourceExhausted, "the pool of node %s is full, %s are needed: %s", p.Node, size(bytes), r)
}
