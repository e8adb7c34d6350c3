package localdisk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// extent is a run of bytes in a file that has data. What no extent has reads as zeroes.
type extent struct {
	from, to int64
	place    uint64 // on the pool's device, of the first byte
	// sure reports whether the location identifies the data. It does not if the data is compressed, encrypted, packed with other data,
	// inline, or not yet allocated.
	sure bool
}

// extentsPerCall bounds what is kept of a file at a time.
const extentsPerCall = 1024

// The ioctl FIEMAP, by Documentation/filesystems/fiemap.rst of Linux.
const (
	fiemapIoctl     = 0xc020660b // _IOWR('f', 11, struct fiemap)
	fiemapSync      = 0x1        // write out what is dirty first, so that it has a place
	fiemapLast      = 0x1
	fiemapUnwritten = 0x800
	// unknown, delayed, encoded, encrypted, not aligned, inline, tail
	fiemapUnsure = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
)

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	start, length              uint64
	flags, mapped, capacity, _ uint32
	extents                    [extentsPerCall]fiemapExtent
}

// extentsFrom lists the extents of a file from an offset on, in order and cut to what lies between the offset and the end. The
// list is complete up to the returned offset, which is end unless the file has more extents than one call lists.
func extentsFrom(f *os.File, from, end int64) ([]extent, int64, error) {
	if from >= end {
		return nil, end, nil
	}
	m := &fiemap{start: uint64(from), length: uint64(end - from), flags: fiemapSync, capacity: extentsPerCall}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapIoctl, uintptr(unsafe.Pointer(m))) //nolint:gosec // as the system call has it
	if errors.Is(errno, unix.EOPNOTSUPP) || errors.Is(errno, unix.ENOTTY) {
		return nil, 0, status.Error(codes.FailedPrecondition, "the pool's filesystem does not tell where data is: read all of the snapshot")
	}
	if errno != 0 {
		return nil, 0, fmt.Errorf("list extents of %s: %w", f.Name(), errno)
	}
	list, until, err := m.read(from, end)
	if err != nil {
		return nil, 0, fmt.Errorf("list extents of %s: %w", f.Name(), err)
	}
	return list, until, nil
}

// read checks and cuts what the kernel answered: a list that is not in order, or that does not get ahead, would make a wrong answer or
// an endless one.
func (m *fiemap) read(from, end int64) (list []extent, until int64, err error) {
	if m.mapped > extentsPerCall {
		return nil, 0, fmt.Errorf("%d extents were returned, %d fit", m.mapped, extentsPerCall)
	}
	at, last := from, m.mapped < extentsPerCall
	for _, x := range m.extents[:m.mapped] {
		last = last || x.flags&fiemapLast != 0
		start, stop := int64(x.logical), int64(x.logical+x.length)
		if start >= end {
			last = true
			break
		}
		if start < 0 || stop <= max(start, at) || start < at && at > from {
			return nil, 0, fmt.Errorf("the extent of %d bytes at %d follows one that ends at %d", x.length, x.logical, at)
		}
		cut := max(start, from)
		at = min(stop, end)
		if x.flags&fiemapUnwritten != 0 && x.flags&fiemapUnsure == 0 {
			continue // allocated, and reads as zeroes
		}
		list = append(list, extent{from: cut, to: at, place: x.physical + uint64(cut-start), sure: x.flags&fiemapUnsure == 0})
	}
	if last {
		at = end
	}
	return list, at, nil
}

// spot describes a file at one offset.
type spot struct {
	data, sure bool
	place      uint64
}

// same reports whether two files have the same bytes at an offset, by their extents there.
func (s spot) same(other spot) bool {
	if !s.data || !other.data {
		return s.data == other.data
	}
	return s.sure && other.sure && s.place == other.place
}

// walk goes through a list of extents.
type walk struct{ left []extent }

// at returns what the list has at an offset, and where that ends. Offsets must not decrease from call to call.
func (w *walk) at(offset, end int64) (spot, int64) {
	next := slices.IndexFunc(w.left, func(x extent) bool { return x.to > offset })
	if next < 0 {
		w.left = nil
		return spot{}, end
	}
	w.left = w.left[next:]
	x := w.left[0]
	if x.from > offset {
		return spot{}, min(x.from, end)
	}
	return spot{data: true, sure: x.sure, place: x.place + uint64(offset-x.from)}, min(x.to, end)
}
