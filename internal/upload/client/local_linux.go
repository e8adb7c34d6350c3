package client

import (
	"context"
	"io/fs"
	"os"

	"github.com/berth-vm/berth/internal/transfer/sink"
)

// dataIn returns the parts of a file that hold data, as offset and length.
func dataIn(ctx context.Context, f *os.File, from, to int64) ([][2]int64, error) {
	return sink.DataIn(ctx, f, from, to)
}

// fileID tells a file from another of the same name, size and time.
func fileID(info fs.FileInfo) uint64 { return sink.FileID(info) }
