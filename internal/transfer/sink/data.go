package sink

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// DataIn says where in [from, to) a file may hold anything but zeroes, as offset and length, in order. A filesystem
// that does not know says everywhere. It moves f's offset, which nobody notices who reads with ReadAt.
func DataIn(ctx context.Context, f *os.File, from, to int64) ([][2]int64, error) {
	var data [][2]int64
	fd := int(f.Fd())
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			break
		}
		if err != nil {
			return [][2]int64{{from, to - from}}, nil
		}
		if start >= to {
			break
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return [][2]int64{{from, to - from}}, nil
		}
		end = min(end, to)
		data = append(data, [2]int64{start, end - start})
		at = end
	}
	return data, nil
}

// FileID is the number of a file within its filesystem.
func FileID(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// IsOurs says whether a name at the top of a volume is one that only this package uses.
func IsOurs(name string) bool {
	return name == unpackingName || strings.HasPrefix(name, ".") && strings.Contains(name, ".berth-")
}
