package localdisk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// filesystem is a filesystem that the driver can make on a volume.
type filesystem struct {
	// minimum is the smallest volume its mkfs takes.
	minimum int64
	make    []string // the image's path follows
	// mountOptions are always needed.
	mountOptions []string
	// growUnmounted makes it fill its device before it is mounted; nil if it can only be grown mounted.
	growUnmounted func(ctx context.Context, device string) error
	// growMounted makes it fill its device while it is used.
	growMounted func(ctx context.Context, device, point string) error
}

// filesystems by the name that mount(2) knows.
//
// Nothing is discarded while making them: an image is new, and a preallocated one would lose its blocks. Blocks of ext4 and
// sectors of xfs are of 4 KiB, which every device accepts, so that a pool can move to a disk with larger sectors. ext4 has an
// inode for 64 KiB and keeps nothing back for root, for few files are on the disk of a machine: of 300 MiB 95 percent are for
// data. xfs is mounted with nouuid because clones of a filesystem have one UUID.
var filesystems = map[string]filesystem{
	"ext4": {
		minimum: 16 << 20,
		make: []string{
			"mkfs.ext4", "-F", "-q", "-b", "4096", "-i", "65536", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
		},
		growUnmounted: growExt4Unmounted,
		growMounted:   growExt4Mounted,
	},
	"xfs": {
		minimum:      300 << 20,
		make:         []string{"mkfs.xfs", "-f", "-q", "-K", "-s", "size=4096"},
		mountOptions: []string{"nouuid"},
		growMounted: func(ctx context.Context, _, point string) error {
			return run(ctx, "xfs_growfs", "-d", point)
		},
	},
}

// format makes a filesystem on an image that is not yet a volume.
func format(ctx context.Context, fsType, image string) error {
	return run(ctx, append(append([]string{}, filesystems[fsType].make...), image)...)
}

// ext4Slack is how much smaller than its device an ext4 may be: a last group of blocks that is too small for its own tables is
// left unused, and must not lead to a check of the whole filesystem at each mount.
const ext4Slack = 4 << 20

// growExt4Unmounted checks and grows an ext4, which needs no privilege that a container may lack.
func growExt4Unmounted(ctx context.Context, device string) error {
	has, fills, err := ext4Size(device)
	if err != nil || fills-has < ext4Slack {
		return err
	}
	err = run(ctx, "e2fsck", "-f", "-p", device) // resize2fs insists on it
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: everything it found is mended
		return err
	}
	return run(ctx, "resize2fs", device)
}

// growExt4Mounted returns what is missing if the kernel would not do it: it asks for a capability that containers of some
// runtimes lack even if they are privileged. The kubelet takes the code for a volume that can grow only when it is next mounted,
// which is right.
func growExt4Mounted(ctx context.Context, device, _ string) error {
	can, err := capable(unix.CAP_SYS_RESOURCE)
	if err != nil {
		return err
	}
	if !can {
		return status.Error(codes.FailedPrecondition, "ext4 grows while it is mounted only with CAP_SYS_RESOURCE, which this process lacks: "+
			"the volume grows when its pod starts the next time; with the filesystem xfs it would grow now")
	}
	return run(ctx, "resize2fs", device)
}

// ext4Size reads how many bytes an ext4 has and its device offers. The layout is in the kernel's documentation
// (filesystems/ext4, "Super Block").
func ext4Size(device string) (has, offers int64, err error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	const start, length = 1024, 1024
	super := make([]byte, length)
	if _, err := f.ReadAt(super, start); err != nil {
		return 0, 0, fmt.Errorf("read superblock of %s: %w", device, err)
	}
	shift := binary.LittleEndian.Uint32(super[0x18:])
	if binary.LittleEndian.Uint16(super[0x38:]) != 0xEF53 || shift > 6 {
		return 0, 0, status.Errorf(codes.FailedPrecondition, "there is no ext4 on %s any more", device)
	}
	blocks := int64(binary.LittleEndian.Uint32(super[0x4:]))
	if binary.LittleEndian.Uint32(super[0x60:])&0x80 != 0 { // the 64bit feature
		blocks |= int64(binary.LittleEndian.Uint32(super[0x150:])) << 32
	}
	offers, err = f.Seek(0, unix.SEEK_END)
	return blocks << (10 + shift), offers, err
}

// capable reports whether this process has a capability.
func capable(capability uint) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("ask for capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}

// run runs a program; its error has the program's output.
func run(ctx context.Context, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}
