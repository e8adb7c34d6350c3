package transfer

import (
	"context"
	"errors"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// stream brings an image that comes in one piece, in order: compressed as a whole, or from a source without ranges.
func (i *imp) stream(_ context.Context) error {
	return &task.Error{Reason: task.UnsupportedImage, Err: errors.New("streams are not read by this version")}
}

func (t *Transfer) unpack(_ context.Context, _ source.Blob, _ *checksum) error {
	return &task.Error{Reason: task.UnsupportedImage, Err: errors.New("archives are not read by this version")}
}
