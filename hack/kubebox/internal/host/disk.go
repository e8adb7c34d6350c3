package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// AttachDisk makes a disk of that backing file appear at its path: formatted and mounted, or as a link to its device. It
// is called inside a node, and finds what an earlier start of the node left.
func AttachDisk(d plan.Disk, file string) error {
	fresh, err := makeFile(file, d.Size)
	if err != nil {
		return err
	}
	if fresh && !d.Block() {
		if err := format(file, d.FSType); err != nil {
			os.Remove(file)
			return err
		}
	}
	device, err := AttachLoop(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.Path()), 0o755); err != nil {
		return fmt.Errorf("make directory of disks: %w", err)
	}
	if d.Block() {
		if err := os.Remove(d.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old link: %w", err)
		}
		return os.Symlink(device, d.Path())
	}
	if err := os.MkdirAll(d.Path(), 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(device, d.Path(), d.FSType, 0, "discard"); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	return mark(d)
}

// mark makes the marker of a disk that is mounted; one that is there keeps what its user wrote into it.
func mark(d plan.Disk) error {
	if d.Marker == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(d.Path(), d.Marker), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("mark disk %s: %w", d.Name, err)
	}
	return f.Close()
}

// makeFile makes a sparse file of that size unless there is one.
func makeFile(path string, size int64) (fresh bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make disk: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return false, fmt.Errorf("size disk: %w", err)
	}
	return true, nil
}

// formats are the programs that make a file system, and how to call them.
var formats = map[string][]string{
	"ext4": {"/sbin/mkfs.ext4", "-q", "-F", "-m", "0"},
	"xfs":  {"/sbin/mkfs.xfs", "-q", "-m", "reflink=1"},
}

func format(file, fsType string) error {
	program := append(formats[fsType], file)
	out, err := exec.Command(program[0], program[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format %s: %w: %s", file, err, out)
	}
	return nil
}

// WipeDisk empties a static disk for its next user. It is called inside the node.
func WipeDisk(d plan.Disk) error {
	if !d.Block() {
		return emptyDir(d.Path())
	}
	dev, err := os.OpenFile(d.Path(), os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("open device for wiping: %w", err)
	}
	defer dev.Close()
	// The loop device turns this into a hole in its backing file: what is read afterwards is zeros.
	if err := unix.Fallocate(int(dev.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, d.Size); err != nil {
		return fmt.Errorf("wipe %s: %w", d.Path(), err)
	}
	return nil
}

// emptyDir removes what is in a mounted file system, except what mkfs put there.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty volume: %w", err)
		}
	}
	return os.Chmod(dir, 0o755)
}

// FreeBytes returns how much an ordinary program can still write at that path.
func FreeBytes(path string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, fmt.Errorf("measure free space of %s: %w", path, err)
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

// MemoryBytes returns the machine's memory.
func MemoryBytes() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("measure memory: %w", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}
