package file

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Data implements source.Sparse: it asks the filesystem where it stored anything. What cannot say (a block device, some
// network filesystems) may hold data anywhere.
func (b *blob) Data(ctx context.Context, from, to int64) ([][2]int64, error) {
	if from < 0 || to > b.info.Size || from > to {
		return nil, fmt.Errorf("look for data of %s in [%d, %d): it has %d bytes", b.info.Name, from, to, b.info.Size)
	}
	b.seek.Lock()
	defer b.seek.Unlock()
	var found [][2]int64
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := b.file.Seek(at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // only holes from here on
			return found, nil
		case err != nil:
			return [][2]int64{{from, to - from}}, nil
		case data >= to:
			return found, nil
		}
		hole, err := b.file.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return [][2]int64{{from, to - from}}, nil
		}
		end := min(hole, to)
		if end <= data {
			return nil, fmt.Errorf("look for data of %s at %d: the file became shorter", b.info.Name, data)
		}
		found = append(found, [2]int64{data, end - data})
		at = end
	}
	return found, nil
}
