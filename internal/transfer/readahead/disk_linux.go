package readahead

import (
	"os"

	"golang.org/x/sys/unix"
)

// ToDisk has the kernel begin to bring to the disk what was written, so that little is left to wait for when the file is synced at the
// end. It waits for nothing itself and promises nothing.
func ToDisk(f *os.File, from, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, length, unix.SYNC_FILE_RANGE_WRITE) // at worst the sync takes longer
}
