package filetree

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/directory"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
)

// Read makes the files of a stream in dir, to its end. What dir holds already is not removed.
func Read(ctx context.Context, r io.Reader, dir *directory.Directory) error {
	in := bufio.NewReaderSize(r, 64<<10)
	magic := make([]byte, len(Magic))
	if _, err := io.ReadFull(in, magic); err != nil {
		return cut(err)
	}
	if string(magic) != Magic {
		return fmt.Errorf("%w: it begins with %q", ErrStream, magic)
	}
	frames, err := peerproto.NewReader(in, 0)
	if err != nil {
		return err
	}
	defer frames.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := readHeader(in)
		if err != nil || h == nil {
			return err
		}
		frames.Reset(h.Size)
		if err := makeEntry(ctx, h, frames, dir); err != nil {
			return err
		}
	}
}

// contents are the bytes of a file, which end with ctx.
type contents struct {
	ctx context.Context
	*peerproto.Reader
}

// Next implements directory.Contents.
func (c contents) Next(p []byte) (int, int64, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, 0, err
	}
	return c.Reader.Next(p)
}

func makeEntry(ctx context.Context, h *header, frames *peerproto.Reader, dir *directory.Directory) error {
	name := string(h.Name)
	if h.Kind != isFile && h.Size != 0 {
		return fmt.Errorf("%w: %q is a %s with %d bytes", ErrStream, name, h.Kind, h.Size)
	}
	switch h.Kind {
	case isFile:
		return dir.Copy(name, h.Size, contents{ctx, frames}, h.attributes())
	case isDir:
		return dir.Mkdir(name, 0o700)
	case isEnd:
		return dir.Restore(name, h.attributes())
	case isLink:
		if err := dir.Symlink(name, string(h.To)); err != nil {
			return err
		}
		return dir.RestoreLink(name, h.attributes())
	case isSame:
		return dir.Link(name, string(h.To))
	case isPipe:
		return dir.Node(name, syscall.S_IFIFO, h.attributes())
	case isSocket:
		return dir.Node(name, syscall.S_IFSOCK, h.attributes())
	}
	return fmt.Errorf("%w: %q is a %q", ErrStream, name, h.Kind)
}

// Broken gives an error of the stream itself, which came from name, its reason; those of files and of the target have theirs.
func Broken(name string, err error) error {
	var known *task.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, ErrStream), errors.Is(err, peerproto.ErrFrame), errors.Is(err, io.ErrUnexpectedEOF):
		return task.Errorf(task.SourceTruncated, "the files of %s did not come as a whole: %w", name, err)
	}
	return err
}
