//go:build !linux

package readahead

import "os"

// ToDisk does nothing here: the file is written to the disk when it is synced.
func ToDisk(*os.File, int64, int64) {}
