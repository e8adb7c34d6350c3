// Package diskspace says how large a disk may be in a claim that has a filesystem of its own. It makes no disk and knows no claims:
// it is given files and numbers.
package diskspace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const page = 4 << 10

// Fit returns how large a disk for which so many bytes were asked may be where so many are free: a guest whose disk is larger
// than what holds it gets errors when it writes. A hundredth stays for the filesystem, which writes down where each piece of a
// file is: for pages that were written in no order ext4 needs 12 bytes each and xfs 16, in blocks that may be half full.
func Fit(asked, free int64) int64 {
	return min(asked, (free-free/100)&^(page-1))
}

// Size gives a new, empty disk its size: what was asked for, or what fits if the filesystem is the claim's own and keeps more than
// is configured for it.
func Size(disk *os.File, asked int64) error {
	own, free, err := Own(disk, asked)
	if err != nil {
		return err
	}
	if own && free > 0 {
		asked = Fit(asked, free)
	}
	if err := disk.Truncate(asked); err != nil {
		return fmt.Errorf("give %s its size of %d bytes: %w", disk.Name(), asked, err)
	}
	return nil
}

// Own returns whether the filesystem of a file is that of a claim for this many bytes, and what is free there. One that others
// share is much larger than one claim.
func Own(f *os.File, asked int64) (own bool, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return false, 0, fmt.Errorf("measure the filesystem of %s: %w", f.Name(), err)
	}
	capacity, free := int64(s.Blocks)*s.Bsize, int64(s.Bavail)*s.Bsize
	return capacity < asked+asked/10, free, nil
}
