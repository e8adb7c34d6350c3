// Package host makes and removes what a cluster needs from the machine it runs on: network devices, cgroups, loop devices,
// Debian packages, kernel settings. Everything here can be repeated, and what is not there is not an error to remove.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A loop is a loop device that has a backing file.
type loop struct {
	number int
	path   string // as the kernel knows it, with " (deleted)" if the file is gone
	device uint64 // of the file system the backing file is on
	inode  uint64
	behind uint64 // the device number, if the backing file is itself a device
}

func (l loop) node() string  { return fmt.Sprintf("/dev/loop%d", l.number) }
func (l loop) rdev() uint64  { return unix.Mkdev(7, uint32(l.number)) }
func (l loop) deleted() bool { return strings.HasSuffix(l.path, "(deleted)") }
func (l loop) file() fileID  { return fileID{l.device, l.inode} }

type fileID struct{ device, inode uint64 }

// loops lists all loop devices in use.
func loops() ([]loop, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var out []loop
	for _, f := range files {
		name := filepath.Base(filepath.Dir(filepath.Dir(f)))
		number, err := strconv.Atoi(strings.TrimPrefix(name, "loop"))
		if err != nil {
			continue
		}
		path, err := os.ReadFile(f)
		if err != nil {
			continue // released since
		}
		l := loop{number: number, path: strings.TrimSpace(string(path))}
		dev, err := os.Open(l.node())
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		dev.Close()
		if err != nil {
			continue
		}
		l.device, l.inode, l.behind = info.Device, info.Inode, info.Rdevice
		out = append(out, l)
	}
	return out, nil
}

// AttachLoop returns a loop device for the file: the one it has already, or a free one.
func AttachLoop(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("open backing file: %w", err)
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return "", fmt.Errorf("stat backing file: %w", err)
	}
	all, err := loops()
	if err != nil {
		return "", err
	}
	for _, l := range all {
		if l.file() == (fileID{stat.Dev, stat.Ino}) {
			return l.node(), nil
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("open loop control: %w", err)
	}
	defer control.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find free loop device: %w", err)
		}
		err = configure(loop{number: number}.node(), file)
		if errors.Is(err, unix.EBUSY) {
			continue // another program took it in between
		}
		return loop{number: number}.node(), err
	}
}

func configure(node string, file *os.File) error {
	dev, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	defer dev.Close()
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{Fd: uint32(file.Fd())}); err != nil {
		return fmt.Errorf("attach %s to %s: %w", file.Name(), node, err)
	}
	return nil
}

// ReleaseLoops frees the loop devices whose backing files lie below dir, those stacked on them (the kubelet holds a Block volume
// open that way) or on files of a file system on them (a pool's volumes), and those left by a cluster whose directory has been
// deleted. It returns how many there were.
func ReleaseLoops(dir string) (int, error) { return releaseLoops(dir, true) }

func releaseLoops(dir string, orphans bool) (int, error) {
	all, err := loops()
	if err != nil || len(all) == 0 {
		return 0, err
	}
	files, err := filesBelow(dir)
	if err != nil {
		return 0, err
	}
	if !orphans {
		all = slices.DeleteFunc(all, func(l loop) bool { return l.deleted() && clusterPath(l.path) })
	}
	ours := owned(all, files)
	slices.Reverse(ours) // what is stacked on another goes before it
	var failed []error
	for _, l := range ours {
		if err := release(l.node()); err != nil {
			failed = append(failed, err)
		}
	}
	return len(ours), errors.Join(failed...)
}

// AwaitNoLoops releases the loop devices of a directory, those of no other, until there are none: one that is in use goes when its last user does,
// and the mounts of a machine that was ended go a moment after its processes.
func AwaitNoLoops(ctx context.Context, dir string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := releaseLoops(dir, false)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d loop devices of %s are still in use: %w", left, dir, ctx.Err())
		}
	}
}

// owned picks the loops that belong to a cluster, each before those stacked on it.
func owned(all []loop, files map[fileID]bool) []loop {
	var found []loop
	taken, devices := map[int]bool{}, map[uint64]bool{}
	for grew := true; grew; {
		grew = false
		for _, l := range all {
			ours := files[l.file()] || devices[l.behind] || devices[l.device] || l.deleted() && clusterPath(l.path)
			if taken[l.number] || !ours {
				continue
			}
			taken[l.number], devices[l.rdev()], grew = true, true, true
			found = append(found, l)
		}
	}
	return found
}

// clusterPath recognises the paths of a cluster's own files. The directories above are unknown once a machine's mounts are gone.
func clusterPath(path string) bool {
	return strings.Contains(path, "/lib/kubelet/") || strings.Contains(path, "/nodes/") && strings.Contains(path, "/disks/")
}

// filesBelow identifies the files that may back loop devices: all but the contents of container images.
func filesBelow(dir string) (map[fileID]bool, error) {
	out := map[fileID]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == filepath.Join(dir, "images") {
			return skipMissing(err, entry)
		}
		if entry.IsDir() && strings.HasSuffix(path, "/var/lib/containerd") {
			return filepath.SkipDir
		}
		if entry.Type().IsRegular() {
			var stat unix.Stat_t
			if unix.Lstat(path, &stat) == nil {
				out[fileID{stat.Dev, stat.Ino}] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for disks below %s: %w", dir, err)
	}
	return out, nil
}

func skipMissing(err error, entry fs.DirEntry) error {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if entry != nil && entry.IsDir() {
		return filepath.SkipDir
	}
	return nil
}

func release(node string) error {
	dev, err := os.Open(node)
	if err != nil {
		return fmt.Errorf("open loop device: %w", err)
	}
	defer dev.Close()
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("free %s: %w", node, err)
	}
	return nil
}
