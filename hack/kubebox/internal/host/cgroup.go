package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchies returns the roots in which a cgroup must exist: one on machines with cgroup v2, one per controller with v1.
func hierarchies(root string) (paths []string, v2 bool, err error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, true, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, false, fmt.Errorf("list cgroup controllers: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() { // not the links that stand for controllers mounted together
			paths = append(paths, filepath.Join(root, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, false, fmt.Errorf("no cgroup controllers are mounted at %s", root)
	}
	return paths, false, nil
}

const cgroupFS = "/sys/fs/cgroup"

// MakeCgroup makes a cgroup ("a/b") that a kubelet can use as its root.
func MakeCgroup(name string) error {
	roots, v2, err := hierarchies(cgroupFS)
	if err != nil {
		return err
	}
	for _, root := range roots {
		parent := root
		for _, step := range strings.Split(name, "/") {
			if v2 {
				if err := delegate(parent); err != nil {
					return err
				}
			}
			dir := filepath.Join(parent, step)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if !v2 {
				if err := inheritCpuset(parent, dir); err != nil {
					return err
				}
			}
			parent = dir
		}
		if v2 {
			if err := delegate(parent); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate lets the children of a v2 cgroup use the controllers a kubelet needs.
func delegate(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	for _, c := range strings.Fields(string(available)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("delegate cgroup controller %s in %s: %w", c, dir, err)
		}
	}
	return nil
}

// inheritCpuset fills what a new v1 cpuset leaves empty, without which no process can enter it.
func inheritCpuset(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another controller
		}
		if err != nil {
			return fmt.Errorf("read cpuset: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return fmt.Errorf("fill cpuset: %w", err)
		}
	}
	return nil
}

// RemoveCgroup removes a cgroup and all below it. Processes that were killed a moment ago may still be leaving it.
func RemoveCgroup(name string) error {
	roots, _, err := hierarchies(cgroupFS)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, root := range roots {
		for {
			err := removeTree(filepath.Join(root, name))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes directories only: the files in a cgroup cannot be removed and go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
