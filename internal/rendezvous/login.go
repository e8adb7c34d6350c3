package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The login of a network disk goes from the holder, whose pod has the Secrets, to the launcher in a file that is only in memory:
// it is never written to a disk, and messages stay short.

// loginLimit is more than a disk's Secrets can hold: one has 1 MiB at most.
const loginLimit = 8 << 20

// packLogin returns a file in memory with every file under dir.
func packLogin(dir string) (*os.File, error) {
	files := map[string][]byte{}
	left := int64(loginLimit)
	if err := collect(dir, "", files, &left); err != nil {
		return nil, err
	}
	text, err := json.Marshal(files)
	if err != nil {
		return nil, fmt.Errorf("pack the login: %w", err)
	}
	fd, err := unix.MemfdCreate("login", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "login")
	if _, err := f.Write(text); err != nil {
		return nil, errors.Join(fmt.Errorf("pack the login: %w", err), f.Close())
	}
	return f, nil
}

// collect reads the files under a directory of mounts. Names that begin with ".." are the kubelet's own, for atomic updates.
func collect(dir, prefix string, files map[string][]byte, left *int64) error {
	entries, err := os.ReadDir(filepath.Join(dir, prefix))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it needs none
	}
	if err != nil {
		return fmt.Errorf("read the login: %w", err)
	}
	for _, e := range entries {
		name := filepath.Join(prefix, e.Name())
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name)) // a key is a link
		switch {
		case err != nil:
			return fmt.Errorf("read the login: %w", err)
		case info.IsDir():
			if err := collect(dir, name, files, left); err != nil {
				return err
			}
			continue
		}
		if *left -= info.Size(); *left < 0 {
			return fmt.Errorf("read the login: its Secrets have more than %d bytes", loginLimit)
		}
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("read the login: %w", err)
		}
	}
	return nil
}

// UnpackLogin writes what a holder handed over under dir, as it was mounted in the holder's pod.
func UnpackLogin(f *os.File, dir string) error {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 2*loginLimit)) // as base64
	if err != nil {
		return fmt.Errorf("read what was handed over: %w", err)
	}
	var files map[string][]byte
	if err := json.Unmarshal(text, &files); err != nil {
		return errors.New("what was handed over is no login") // not its words: they may quote it
	}
	for name, content := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("what was handed over has a file %q", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("keep the login: %w", err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("keep the login: %w", err)
		}
	}
	return nil
}
