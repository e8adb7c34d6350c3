package extent

import (
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
)

// File is an image's file as its parser sees it: bytes, and where they end.
type File struct {
	io.ReaderAt
	Size int64
}

// Fill reads all of p from off. What reaches beyond the end of the file is refused as truncated, with the numbers; what
// says how messages call it. Errors of the reader itself pass through: the source knows better what they mean.
func (f File) Fill(p []byte, off int64, what string) error {
	n := int64(len(p))
	if off < 0 || off > f.Size || n > f.Size-off {
		return task.Truncated(what, off, n, f.Size)
	}
	got, err := f.ReadAt(p, off)
	if got == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at byte %d: %w", what, off, err)
}

// Table reads n bytes from off in pieces of at most 64 KiB, each a multiple of record bytes long, and hands them to do
// with their distance from off. n must be a multiple of record and record a divisor of 64 KiB.
func (f File) Table(off, n int64, what string, do func(at int64, p []byte) error) error {
	if off < 0 || off > f.Size || n > f.Size-off {
		return task.Truncated(what, off, n, f.Size)
	}
	buf := make([]byte, min(n, TablePiece))
	for at := int64(0); at < n; at += TablePiece {
		p := buf[:min(n-at, TablePiece)]
		if err := f.Fill(p, off+at, what); err != nil {
			return err
		}
		if err := do(at, p); err != nil {
			return err
		}
	}
	return nil
}

// TablePiece is how much of a table is in memory at a time.
const TablePiece = 64 << 10
