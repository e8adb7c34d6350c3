package sink

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// DataIn returns the parts of [from, to) that may hold anything but zeroes, as offset and length, in order. If the filesystem
// cannot tell, that is everything. It moves f's offset, which readers with ReadAt do not notice.
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

// FileID returns the number of a file within its filesystem.
func FileID(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
