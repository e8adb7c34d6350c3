package sink

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace makes p the contents of a small file, on stable storage: after a crash the file is as it was, or as it is now.
func Replace(path string, p []byte) error {
	next := path + "-new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o660)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // opened for reading
	return dir.Sync()
}
