package localdisk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of the mount table.
type mount struct {
	device   string // major:minor
	root     string // what of the filesystem is mounted
	point    string
	fsType   string
	readonly bool
}

// mountTable is the mount table of this process.
const mountTable = "/proc/self/mountinfo"

// mountsOf lists where a device is mounted: its filesystem, or its node in /dev for block volumes.
func mountsOf(dev *loop) ([]mount, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var of []mount
	for _, m := range all {
		if m.device == dev.number() || m.isNode(dev.minor) {
			of = append(of, m)
		}
	}
	return of, nil
}

// isNode reports whether the mount is of a loop device's node.
func (m mount) isNode(minor int) bool {
	return (m.fsType == "devtmpfs" || m.fsType == "tmpfs") && strings.HasSuffix(m.root, fmt.Sprintf("/loop%d", minor))
}

// mountAt returns what is mounted at a path last, nil if nothing is.
func mountAt(point string) (*mount, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var last *mount
	for _, m := range all {
		if m.point == point {
			last = &m
		}
	}
	return last, nil
}

func mounts() ([]mount, error) {
	f, err := os.Open(mountTable)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads proc_pid_mountinfo(5): ID parent major:minor root point options [tags...] - type source options.
func parseMounts(r io.Reader) ([]mount, error) {
	var all []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // overlay mounts list their layers
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields, kinds := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 6 || len(kinds) < 1 {
			return nil, fmt.Errorf("mount table has a line that is none: %q", lines.Text())
		}
		all = append(all, mount{
			device: fields[2], root: unescape(fields[3]), point: unescape(fields[4]), fsType: kinds[0],
			readonly: strings.HasPrefix(fields[5]+",", "ro,"),
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return all, nil
}

// unescape undoes what the kernel does to blanks and backslashes in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// mountFlags are the options that mount(2) takes as flags.
var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME,
	"lazytime": unix.MS_LAZYTIME, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	"rw": 0, "defaults": 0, "suid": 0, "dev": 0, "exec": 0, "atime": 0,
}

// splitOptions tells flags from what the filesystem gets as text.
func splitOptions(options []string) (flags uintptr, text string) {
	var rest []string
	for _, list := range options {
		for option := range strings.SplitSeq(list, ",") {
			if flag, known := mountFlags[option]; known {
				flags |= flag
			} else if option != "" {
				rest = append(rest, option)
			}
		}
	}
	return flags, strings.Join(rest, ",")
}

// mountDevice mounts a filesystem.
func mountDevice(device, point, fsType string, options []string) error {
	flags, text := splitOptions(options)
	if err := unix.Mount(device, point, fsType, flags, text); err != nil {
		return fmt.Errorf("mount %s (%s) at %s with %q: %w", device, fsType, point, options, err)
	}
	return nil
}

// bind mounts one path at another. Read-only takes a second call that changes the first mount; in between the new path is not
// known to any program.
func bind(from, to string, readonly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	if !readonly {
		return nil
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("make %s read-only: %w", to, err), unix.Unmount(to, 0))
	}
	return nil
}

// unmount removes everything that is mounted at a path; it is no error if nothing is. The kernel returns EINVAL where nothing is
// mounted: another process was faster, and the table of mounts says so; or the mount is hidden, and asking again would not help.
func unmount(point string) error {
	missing := false
	for {
		m, err := mountAt(point)
		if err != nil || m == nil {
			return err
		}
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		again := errors.Is(err, unix.EINVAL)
		if again && missing {
			return fmt.Errorf("unmount %s: something is mounted there, but another mount or a link hides it: remove that first: %w", point, err)
		}
		if err != nil && !again {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
		missing = again
	}
}
