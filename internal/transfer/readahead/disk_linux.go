package readahead

import (
	"os"

	"golang.org/x/sys/unix"
)

// ToDisk makes the kernel start to write cached data to the disk, so that the sync at the end is short. It does not wait, and
// guarantees nothing.
func ToDisk(f *os.File, from, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, length, unix.SYNC_FILE_RANGE_WRITE) // at worst the sync takes longer
}
