package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Copy copies files, or all files of a directory, into a directory. It runs inside a container image that may hold
// nothing else, so links are not followed out of it: only regular files are taken.
func Copy(from []string, to string) error {
	for _, f := range from {
		info, err := os.Lstat(f)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			if err := copyFile(f, filepath.Join(to, filepath.Base(f))); err != nil {
				return err
			}
			continue
		}
		entries, err := os.ReadDir(f)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := copyFile(filepath.Join(f, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o660)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return os.Chmod(to, 0o770) // the file may be this very program, which the next container runs
}
