package localdisk

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// filesystem is one that can be made on a volume.
type filesystem struct {
	// minimum is the smallest volume its mkfs takes.
	minimum int64
	make    []string // the image's path follows
	// mountOptions are always needed.
	mountOptions []string
	grow         func(device, point string) []string
}

// filesystems by the name that mount(2) knows. Nothing is discarded while making them: an image is new, and a
// preallocated one would lose its blocks. xfs gets sectors of 4 KiB, which every device accepts, so that a pool can move to
// a disk with larger sectors; it is mounted with nouuid because clones of a filesystem have one UUID. ext4 keeps nothing
// back for root: the disk of a machine is all that is on it.
var filesystems = map[string]filesystem{
	"ext4": {
		minimum: 16 << 20,
		make:    []string{"mkfs.ext4", "-F", "-q", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"},
		grow:    func(device, _ string) []string { return []string{"resize2fs", device} },
	},
	"xfs": {
		minimum:      300 << 20,
		make:         []string{"mkfs.xfs", "-f", "-q", "-K", "-s", "size=4096"},
		mountOptions: []string{"nouuid"},
		grow:         func(_, point string) []string { return []string{"xfs_growfs", "-d", point} },
	},
}

// format makes a filesystem on an image that is not yet a volume.
func format(ctx context.Context, fsType, image string) error {
	return run(ctx, append(append([]string{}, filesystems[fsType].make...), image)...)
}

// growFilesystem makes a mounted filesystem fill its device; one that does is left alone.
func growFilesystem(ctx context.Context, fsType, device, point string) error {
	return run(ctx, filesystems[fsType].grow(device, point)...)
}

// run runs a program; its error has what the program said.
func run(ctx context.Context, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}
