package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/wire"
)

// file is what is sent.
type file struct {
	*os.File
	name string
	size int64
	mark string // what it is known again by
	raw  bool   // its bytes are the disk
}

// look finds out what there is to know of a file before it is sent.
func look(f *os.File) (*file, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory", f.Name())
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be uploaded: it must be a file or a block device", f.Name())
	}
	head, tail := make([]byte, min(format.HeadSize, size)), make([]byte, min(format.TailSize, size))
	_, err = f.ReadAt(head, 0)
	if err == nil || errors.Is(err, io.EOF) {
		_, err = f.ReadAt(tail, size-int64(len(tail)))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	raw := size > 0 && decode.Detect(head) == decode.None && format.Detect(head, tail, size) == format.Raw
	return &file{
		File: f, name: info.Name(), size: size, raw: raw,
		mark: fmt.Sprintf("%s/%d/%d/%x", info.Name(), size, info.ModTime().UnixNano(), fileID(info)),
	}, nil
}

// look again: a file that changed under way must not be taken for the one whose first half the server has.
func (f *file) unchanged() error {
	now, err := look(f.File)
	if err != nil {
		return err
	}
	if now.mark != f.mark {
		return fmt.Errorf("%s changed while it was uploaded", f.Name())
	}
	return nil
}

// window bounds the list of extents that is in memory.
const window = 256 << 20

// frames writes the file from off on, of which holes are not even read. sent is told the offset of the file that has
// been written to w.
func (f *file) frames(ctx context.Context, w io.Writer, off int64, sent func(int64)) error {
	out := wire.NewPlainWriter(w)
	buf := make([]byte, wire.MaxFrame)
	for at := off; at < f.size; {
		end := min(f.size, at+window)
		data, err := dataIn(ctx, f.File, at, end)
		if err != nil {
			return err
		}
		for _, d := range append(data, [2]int64{end, 0}) {
			if err := out.Zeroes(d[0] - at); err != nil {
				return err
			}
			at = d[0]
			for stop := d[0] + d[1]; at < stop; {
				p := buf[:min(int64(len(buf)), stop-at)]
				if _, err := f.ReadAt(p, at); err != nil {
					return fmt.Errorf("read %s: %w", f.Name(), err)
				}
				if _, err := out.Write(p); err != nil {
					return err
				}
				at += int64(len(p))
				sent(at)
			}
			sent(at)
		}
	}
	return nil
}

// bytes writes the file as it is from off on.
func (f *file) bytes(_ context.Context, w io.Writer, off int64, sent func(int64)) error {
	buf := make([]byte, wire.MaxFrame)
	for at := off; at < f.size; {
		p := buf[:min(int64(len(buf)), f.size-at)]
		if _, err := f.ReadAt(p, at); err != nil {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		at += int64(len(p))
		sent(at)
	}
	return nil
}
