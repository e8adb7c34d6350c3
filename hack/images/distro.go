package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berth-vm/berth/hack/images/bootdisk"
	"github.com/berth-vm/berth/hack/images/debian"
	distro "github.com/berth-vm/berth/images/debian"
)

// debianGuest makes the disk of an ordinary Debian, and the layer of a container image. Another process that makes it already is waited for.
func (b *build) debianGuest(ctx context.Context) error {
	dir := filepath.Join(b.out, "debian")
	unlock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := debian.Require(ctx, b.log, []string{"debootstrap"}); err != nil {
		return err
	}
	in := bootdisk.System{Config: b.source("debian"), Debs: filepath.Join(b.cache, "debootstrap")}
	if in.Packages, err = debian.ReadList(b.source("debian", "packages")); err != nil {
		return err
	}
	if in.Versions, err = b.versions(ctx, in.Packages); err != nil {
		return err
	}
	if in.Mirror, in.Release, err = mirror(ctx); err != nil {
		return err
	}
	loaders, err := debian.ReadList(b.source("guest", "packages"))
	if err != nil {
		return err
	}
	if in.GRUB, err = b.fetched(ctx, loaders...); err != nil {
		return err
	}
	m, err := bootdisk.BuildSystem(ctx, in, dir)
	if err != nil {
		return err
	}
	b.say("debian disk sha256:%s in %s", m.Files[distro.QCOW2].SHA256, dir)
	return b.debianRoot(ctx, in, dir)
}

// debianRoot makes the layer of an ordinary Debian container image, with packages of the release and mirror of the disk.
func (b *build) debianRoot(ctx context.Context, in bootdisk.System, dir string) error {
	var err error
	if in.Packages, err = debian.ReadList(b.source("debian", "packages.container")); err != nil {
		return err
	}
	if in.Versions, err = b.versions(ctx, in.Packages); err != nil {
		return err
	}
	if err := bootdisk.BuildRoot(ctx, in, dir); err != nil {
		return err
	}
	b.say("debian container image's layer in %s", filepath.Join(dir, distro.Layer))
	return nil
}

// versions lists the packages that the named ones need, with themselves, each with its version.
func (b *build) versions(ctx context.Context, names []string) (string, error) {
	all, err := b.debs.Closure(ctx, names...)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range all {
		out.WriteString(p.Name + " " + p.Version + "\n")
	}
	return out.String(), nil
}

// lockDir locks a directory, which is made if there is none, until unlock is called or the process ends.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		_ = d.Close() // nothing was written
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil
}

// fetched downloads packages and returns their files.
func (b *build) fetched(ctx context.Context, names ...string) ([]string, error) {
	packages, err := b.debs.Named(ctx, names...)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range packages {
		out = append(out, b.debs.Path(p))
	}
	return out, b.debs.Fetch(ctx, packages)
}

// mirror returns where this machine gets Debian's packages from, and the release that it gets.
func mirror(ctx context.Context) (site, release string, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)", "Created-By: Packages")
	cmd.Stdout = &said
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("ask apt for its sources: %w", err)
	}
	for line := range strings.Lines(said.String()) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "main" && !strings.Contains(f[1], "-") {
			return f[0], f[1], nil
		}
	}
	return "", "", errors.New("apt has no source of a release of Debian")
}
