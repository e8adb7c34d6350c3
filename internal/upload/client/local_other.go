//go:build !linux

package client

import (
	"context"
	"io/fs"
	"os"
)

// dataIn takes all of a file for data: only Linux is asked where its holes are.
func dataIn(_ context.Context, _ *os.File, from, to int64) ([][2]int64, error) {
	return [][2]int64{{from, to - from}}, nil
}

// fileID is not known here; a file is known again by name, size and time.
func fileID(fs.FileInfo) uint64 { return 0 }
