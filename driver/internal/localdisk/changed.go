package localdisk

import (
	"context"
	"os"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What changed between two snapshots follows from where their images have their data, and nothing is read: an offset at which
// both have the same block has the same bytes, because
//
//   - the image of a snapshot is never written, and a filesystem with shared blocks writes to a block that more than one file
//     has elsewhere: a block keeps its bytes for as long as a snapshot has it;
//   - a block that a file has is not freed, and not used for anything else. That holds for a removed file that is still open,
//     so both images are open from before the first look to after the last;
//   - if the filesystem moves blocks (defragmentation, balance), a block of one image may come to where one of the other was
//     before. So the base is looked at before and after the target, and must be the same.
//
// A list of places whose file is gone proves nothing, so none is ever kept. The other direction does not hold: a block that was
// moved, or written with the bytes that it had, is reported although nothing changed.

// image is the open image of a snapshot.
type image struct {
	file *os.File
	size int64
}

// looks bounds how often a part is looked at while the filesystem moves blocks of it.
const looks = 10

// changes calls found with the ranges in which target differs from base, in order, from an offset on. Without a base these are
// the ranges that have data. Bytes behind the end of the base count as zeroes: that is how a volume grows.
func changes(ctx context.Context, base *image, target image, from int64, found func(from, to int64) error) error {
	for at := from; at < target.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		was, is, end, err := lookAtBoth(base, target, at)
		if err != nil {
			return err
		}
		if err := compare(was, is, at, end, found); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// lookAtBoth lists what both images have from an offset on, up to the returned one.
func lookAtBoth(base *image, target image, at int64) (was, is []extent, end int64, err error) {
	if base == nil {
		is, end, err = extentsFrom(target.file, at, target.size)
		return nil, is, end, err
	}
	baseEnd := min(base.size, target.size)
	for range looks {
		var wasEnd, isEnd int64
		if was, wasEnd, err = extentsFrom(base.file, at, baseEnd); err != nil {
			return nil, nil, 0, err
		}
		if is, isEnd, err = extentsFrom(target.file, at, target.size); err != nil {
			return nil, nil, 0, err
		}
		again, _, err := extentsFrom(base.file, at, baseEnd)
		if err != nil {
			return nil, nil, 0, err
		}
		if wasEnd == baseEnd {
			wasEnd = target.size
		}
		if slices.Equal(was, again) {
			return was, is, min(wasEnd, isEnd), nil
		}
	}
	return nil, nil, 0, status.Error(codes.Unavailable,
		"the pool's filesystem is moving blocks (defragmentation?): ask again from where the answer ended")
}

// compare calls found with the ranges between two offsets in which the lists differ.
func compare(was, is []extent, at, end int64, found func(from, to int64) error) error {
	before, now := walk{was}, walk{is}
	for at < end {
		old, oldEnd := before.at(at, end)
		current, currentEnd := now.at(at, end)
		next := min(oldEnd, currentEnd)
		if !old.same(current) {
			if err := found(at, next); err != nil {
				return err
			}
		}
		at = next
	}
	return nil
}
