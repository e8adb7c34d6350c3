package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
)

// Origin is the source of an upload that is not a local file.
type Origin struct {
	io.ReaderAt
	Name string
	Size int64
	// Mark identifies the source: an upload continues only from the same one.
	Mark string
}

// file is the file to send.
type file struct {
	Origin
	raw bool // its bytes are the disk
	// data returns the ranges that may hold anything but zeroes; now returns its present mark.
	data func(ctx context.Context, from, to int64) ([][2]int64, error)
	now  func() (string, error)
}

// file returns what is sent of an Origin: all of it.
func (o Origin) file() *file {
	return &file{Origin: o, now: func() (string, error) { return o.Mark, nil },
		data: func(_ context.Context, from, to int64) ([][2]int64, error) { return [][2]int64{{from, to - from}}, nil }}
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
		Origin: Origin{ReaderAt: f, Name: info.Name(), Size: size,
			Mark: fmt.Sprintf("%s/%d/%d/%x", info.Name(), size, info.ModTime().UnixNano(), fileID(info))},
		raw:  raw,
		data: func(ctx context.Context, from, to int64) ([][2]int64, error) { return dataIn(ctx, f, from, to) },
		now: func() (string, error) {
			again, err := look(f)
			if err != nil {
				return "", err
			}
			return again.Mark, nil
		},
	}, nil
}

// The file is checked again, because a file that changed during the upload must not be taken for the one whose first half the server has.
func (f *file) unchanged() error {
	now, err := f.now()
	if err != nil {
		return err
	}
	if now != f.Mark {
		return fmt.Errorf("%s changed while it was uploaded", f.Name)
	}
	return nil
}

// window bounds the list of extents that is in memory.
const window = 256 << 20

// frames writes the file from off on. Holes are not even read. sent is called with the offset of the file that has been written
// to w.
func (f *file) frames(ctx context.Context, w io.Writer, off int64, sent func(int64)) error {
	out := peerproto.NewPlainWriter(w)
	buf := make([]byte, peerproto.MaxFrame)
	for at := off; at < f.Size; {
		end := min(f.Size, at+window)
		data, err := f.data(ctx, at, end)
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
					return fmt.Errorf("read %s: %w", f.Name, err)
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
	buf := make([]byte, peerproto.MaxFrame)
	for at := off; at < f.Size; {
		p := buf[:min(int64(len(buf)), f.Size-at)]
		if _, err := f.ReadAt(p, at); err != nil {
			return fmt.Errorf("read %s: %w", f.Name, err)
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		at += int64(len(p))
		sent(at)
	}
	return nil
}
