package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Size gives a new, empty disk its size: what was asked for, or what fits if the filesystem is the claim's own and keeps more than
// is configured for it. A guest whose disk is larger than what holds it gets errors when it writes to the end.
func Size(disk *os.File, asked int64) error {
	own, free, err := Own(disk, asked)
	if err != nil {
		return err
	}
	if own && free > 0 {
		asked = min(asked, free)
	}
	if err := disk.Truncate(asked); err != nil {
		return fmt.Errorf("give %s its size of %d bytes: %w", disk.Name(), asked, err)
	}
	return nil
}

// Own says whether the filesystem of a file is that of a claim for this many bytes, and what is free there. One that others share
// is much larger than one claim.
func Own(f *os.File, asked int64) (own bool, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return false, 0, fmt.Errorf("measure the filesystem of %s: %w", f.Name(), err)
	}
	const page = 4 << 10
	capacity, free := int64(s.Blocks)*s.Bsize, int64(s.Bavail)*s.Bsize&^(page-1)
	return capacity < asked+asked/10, free, nil
}
