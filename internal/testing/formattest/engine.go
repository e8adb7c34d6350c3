package formattest

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// Assemble makes the disk of an image, reading its file through windows of the given size.
func Assemble(ctx context.Context, m extent.Image, f extent.File, window int64) (*Disk, error) {
	disk := NewDisk(m.Size())
	err := extent.Walk(ctx, m, f.Size, window, func(from, to int64, es []extent.Extent) error {
		last := from
		for _, e := range es {
			if e.Host < last || e.Host >= to || e.Coding == extent.Plain && e.Host+e.Stored > to {
				return fmt.Errorf("extent %+v is out of order or out of the window [%d, %d)", e, from, to)
			}
			last = e.Host
			p := make([]byte, e.Stored)
			if err := f.Fill(p, e.Host, "data"); err != nil {
				return err
			}
			if err := place(disk, e, p); err != nil {
				return err
			}
		}
		return nil
	})
	return disk, err
}

// errDecode is wrapped by the error for an extent whose bytes cannot be decoded. The real engine reports a bad image then.
var errDecode = errors.New("decode extent")

// place puts one extent onto a disk.
func place(disk *Disk, e extent.Extent, p []byte) error {
	if int64(len(p)) != e.Stored || e.Size < 0 || e.Coding == extent.Plain && e.Stored != e.Size {
		return fmt.Errorf("extent %+v comes with %d bytes", e, len(p))
	}
	var r io.Reader
	switch e.Coding {
	case extent.Plain:
		return disk.Write(p, e.Guest)
	case extent.Deflate:
		r = flate.NewReader(bytes.NewReader(p))
	case extent.Zlib:
		z, err := zlib.NewReader(bytes.NewReader(p))
		if err != nil {
			return fmt.Errorf("%w %+v: %w", errDecode, e, err)
		}
		r = z
	case extent.Zstd:
		z, err := zstd.NewReader(bytes.NewReader(p), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return fmt.Errorf("%w %+v: %w", errDecode, e, err)
		}
		defer z.Close()
		r = z
	}
	to := make([]byte, e.Size)
	if _, err := io.ReadFull(r, to); err != nil {
		return fmt.Errorf("%w %+v: %w", errDecode, e, err)
	}
	return disk.Write(to, e.Guest)
}

// Memory is an extent.Output in memory.
type Memory struct {
	Disk   *Disk
	Parks  []byte
	Puts   int
	Limit  int64 // of Begin, if not 0
	Broken error // what every Put and Park returns, if set
	begun  bool
}

// Begin implements extent.Output.
func (m *Memory) Begin(size int64) error {
	switch {
	case m.begun:
		return errors.New("begun twice")
	case m.Limit > 0 && size > m.Limit:
		return fmt.Errorf("virtual size %d is larger than the test's %d", size, m.Limit)
	}
	m.begun = true
	if m.Disk == nil {
		m.Disk = NewDisk(size)
	}
	return nil
}

// Put implements extent.Output.
func (m *Memory) Put(e extent.Extent, p []byte) error {
	if !m.begun {
		return errors.New("put before begin")
	}
	if m.Broken != nil {
		return m.Broken
	}
	m.Puts++
	return place(m.Disk, e, p)
}

// Park implements extent.Output.
func (m *Memory) Park(p []byte) (int64, error) {
	if !m.begun {
		return 0, errors.New("park before begin")
	}
	if m.Broken != nil {
		return 0, m.Broken
	}
	at := int64(len(m.Parks))
	m.Parks = append(m.Parks, p...)
	return at, nil
}

// Parked implements extent.Output.
func (m *Memory) Parked(p []byte, at int64) error {
	if at < 0 || at > int64(len(m.Parks)) || len(p) > len(m.Parks)-int(at) {
		return fmt.Errorf("%d bytes at %d were never parked", len(p), at)
	}
	copy(p, m.Parks[at:])
	return nil
}

// Forget implements extent.Forgetter. What is forgotten is destroyed, so that reading it again shows.
func (m *Memory) Forget(at, n int64) {
	for i := range m.Parks[at : at+n] {
		m.Parks[at+int64(i)] ^= 0xa5
	}
}

// Again returns what a process that starts after a crash finds: what was put, and what was parked up to a checkpoint.
func (m *Memory) Again(parked int64) *Memory {
	return &Memory{Disk: m.Disk, Parks: m.Parks[:parked], Limit: m.Limit}
}

// Tolerable reports whether an error is the fault of data the formats do not look at, or of this small engine.
func Tolerable(err error) bool { return errors.Is(err, errDecode) || errors.Is(err, ErrFull) }
