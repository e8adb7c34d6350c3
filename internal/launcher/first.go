package launcher

import (
	"errors"
	"fmt"
	"os"

	"github.com/berth-vm/berth/internal/diskspace"
)

// firstDisk makes the disk of a claim that was made without a source. It gets its name when it has its size, so that
// nobody takes half of one for a disk.
func firstDisk(path string, size int64) (Backing, error) {
	unnamed := path + ".new"
	f, err := os.OpenFile(unnamed, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o660)
	if err != nil {
		return Backing{}, fmt.Errorf("make the claim's disk: %w", err)
	}
	if err := errors.Join(diskspace.Size(f, size), f.Sync(), f.Close()); err != nil {
		return Backing{}, fmt.Errorf("make the claim's disk of %d bytes: %w", size, err)
	}
	if err := os.Rename(unnamed, path); err != nil {
		return Backing{}, fmt.Errorf("make the claim's disk: %w", err)
	}
	return Backing{Path: path, Format: "raw"}, nil
}
