package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A requirement is a file that a cluster needs, and the Debian package it comes in.
type requirement struct{ file, pkg string }

var requirements = []requirement{
	{"/usr/bin/containerd", "containerd"},
	{"/usr/bin/containerd-shim-runc-v2", "containerd"},
	{"/usr/sbin/runc", "runc"},
	{"/usr/lib/cni/ptp", "containernetworking-plugins"},
	{"/usr/sbin/iptables", "iptables"}, // the portmap plugin calls it
	{"/usr/sbin/nft", "nftables"},
	{"/bin/busybox", "busybox-static"},
	{"/sbin/mkfs.ext4", "e2fsprogs"},
	{"/sbin/mkfs.xfs", "xfsprogs"},
	{"/sbin/losetup", "mount"}, // the kubelet calls it for Block volumes
}

// MissingPackages returns the Debian packages whose files are not there.
func MissingPackages() []string {
	var missing []string
	for _, r := range requirements {
		if _, err := os.Stat(r.file); err != nil && !slices.Contains(missing, r.pkg) {
			missing = append(missing, r.pkg)
		}
	}
	return missing
}

// InstallCommand returns what a user would type to install packages.
func InstallCommand(packages []string) string {
	return "apt-get install -y --no-install-recommends " + strings.Join(packages, " ")
}

// InstallPackages installs packages with apt-get, and fetches the package lists only if that is needed.
func InstallPackages(ctx context.Context, packages []string, log io.Writer) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is not a Debian system; install what Debian has as %s", strings.Join(packages, ", "))
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	if apt(ctx, log, install...) == nil {
		return nil
	}
	err := update(ctx, log)
	if err == nil {
		err = apt(ctx, log, install...)
	}
	if err == nil && len(MissingPackages()) > 0 {
		err = fmt.Errorf("files of %s are still missing", strings.Join(MissingPackages(), ", "))
	}
	if err != nil {
		return fmt.Errorf("install packages (try `%s`): %w", InstallCommand(packages), err)
	}
	return nil
}

// update fetches the package lists. apt-get waits for another process that installs packages, but not for one that fetches the
// lists, as the build of images does at the same time.
func update(ctx context.Context, log io.Writer) error {
	const tries, pause = 30, 2 * time.Second
	for n := 1; ; n++ {
		var said bytes.Buffer
		err := apt(ctx, io.MultiWriter(log, &said), "update")
		if err == nil || n == tries || !bytes.Contains(said.Bytes(), []byte("/lists/lock")) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func apt(ctx context.Context, log io.Writer, args ...string) error {
	// waits for another process that installs packages, such as the build of images
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", args[0], err)
	}
	return nil
}
