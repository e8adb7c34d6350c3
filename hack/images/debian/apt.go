// Package debian gets files out of Debian's archive: it asks apt which packages a list of names needs, downloads them into a cache and
// reads the files in them. Nothing is installed on the machine except by Require, and nothing here needs root but that.
//
// It does not know what the packages are for. Versions are those of the machine's own apt sources: they are an input of a build.
package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Package is one .deb as apt's signed index describes it.
type Package struct {
	Name, Version string
	File          string // name of the .deb, unique for name, version and architecture
	Size          int64
	SHA256        string // what Fetch verifies
}

// Cache is a folder of downloaded packages. A file in it has been verified.
type Cache struct {
	Dir string
	// Arch is an architecture, as Debian calls it, whose packages are asked for instead of the machine's own. Prepare must have been
	// called for one.
	Arch string
}

// Path returns where Fetch puts the package.
func (c Cache) Path(p Package) string { return filepath.Join(c.Dir, p.File) }

// Closure resolves names to the packages that an empty machine would need to install them, without recommendations, sorted by name.
func (c Cache) Closure(ctx context.Context, names ...string) ([]Package, error) {
	// An empty list of installed packages makes apt plan for an empty machine instead of this one, and an empty cache makes it name
	// what it would otherwise find there.
	dir, err := os.MkdirTemp("", "apt-")
	if err != nil {
		return nil, fmt.Errorf("make empty package list: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, fmt.Errorf("make empty package list: %w", err)
	}
	args := []string{
		"-o", "Dir::State::status=" + status, "-o", "Dir::Cache::archives=" + dir, "-o", "Debug::NoLocking=1",
		"-o", "APT::Install-Recommends=false", "--yes", "--print-uris", "install",
	}
	packages, err := c.plan(ctx, append(args, names...), names)
	if err != nil {
		return nil, err
	}
	// Here apt tells the weakest digest of a package, or none; asked for the same packages by name, it tells the strongest.
	exact := make([]string, 0, len(packages))
	for _, p := range packages {
		exact = append(exact, p.Name+"="+p.Version)
	}
	return c.Named(ctx, exact...)
}

// Named resolves names to just these packages, sorted by name. A name may be a pattern of apt's, or name=version.
func (c Cache) Named(ctx context.Context, names ...string) ([]Package, error) {
	packages, err := c.plan(ctx, append([]string{"--print-uris", "download"}, names...), names)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if p.SHA256 == "" {
			return nil, fmt.Errorf("apt gives no SHA256 for %s", p.Name)
		}
	}
	return packages, nil
}

func (c Cache) plan(ctx context.Context, args, names []string) ([]Package, error) {
	out, err := run(ctx, "", "apt-get", c.options(args...)...)
	if err != nil {
		return nil, fmt.Errorf("ask apt for %s (is its index there? apt-get update makes it): %w", strings.Join(names, " "), err)
	}
	packages, err := parsePlan(string(out))
	if err != nil {
		return nil, fmt.Errorf("read apt's plan for %s: %w", strings.Join(names, " "), err)
	}
	return packages, nil
}

// parsePlan reads lines like: 'http://host/x.deb' name_version_arch.deb 1234 SHA256:00ff... with any digest or none at the end.
func parsePlan(text string) ([]Package, error) {
	var packages []Package
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "'") {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %q has %d fields, not an address, a name and a size", strings.TrimSpace(line), len(fields))
		}
		p := Package{File: fields[1]}
		unescaped, err := url.PathUnescape(p.File) // the colon of an epoch is written %3a
		if err != nil {
			return nil, fmt.Errorf("file name %q: %w", p.File, err)
		}
		parts := strings.Split(unescaped, "_")
		if len(parts) != 3 {
			return nil, fmt.Errorf("file name %q is not name_version_architecture.deb", p.File)
		}
		p.Name, p.Version = parts[0], parts[1]
		if p.Size, err = strconv.ParseInt(fields[2], 10, 64); err != nil {
			return nil, fmt.Errorf("size of %s: %w", p.Name, err)
		}
		for _, digest := range fields[3:] {
			if sum, ok := strings.CutPrefix(digest, "SHA256:"); ok {
				p.SHA256 = sum
			}
		}
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.File, b.File) })
	return packages, nil
}

// Dependency returns the first package that a meta package depends on, e.g. the kernel of today behind linux-image-cloud-amd64.
func Dependency(ctx context.Context, name string) (string, error) {
	out, err := run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return "", fmt.Errorf("ask apt what %s depends on: %w", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if list, ok := strings.CutPrefix(line, "Depends:"); ok {
			return strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" ,(|\n", r) })[0], nil
		}
	}
	return "", fmt.Errorf("package %s depends on nothing", name)
}

// Fetch downloads what is not in the cache yet. It may be interrupted and repeated.
func (c Cache) Fetch(ctx context.Context, packages []Package) error {
	var missing []Package
	for _, p := range packages {
		if info, err := os.Stat(c.Path(p)); err != nil || info.Size() != p.Size {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make package cache: %w", err)
	}
	dir, err := os.MkdirTemp(c.Dir, "download-")
	if err != nil {
		return fmt.Errorf("make download folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// As root, apt would download as its own user, who cannot write here.
	args := []string{"-o", "APT::Sandbox::User=root", "download"}
	for _, p := range missing {
		args = append(args, p.Name+"="+p.Version)
	}
	if _, err := run(ctx, dir, "apt-get", c.options(args...)...); err != nil {
		return fmt.Errorf("download %d packages: %w", len(missing), err)
	}
	for _, p := range missing {
		if err := verify(filepath.Join(dir, p.File), p); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, p.File), c.Path(p)); err != nil {
			return fmt.Errorf("keep package: %w", err)
		}
	}
	return nil
}

func verify(path string, p Package) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open downloaded package: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read downloaded package: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != p.SHA256 {
		return fmt.Errorf("package %s has sha256 %s, apt's index says %s", p.File, got, p.SHA256)
	}
	return nil
}

// run returns the standard output; a failure carries the last words of standard error.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%w: images are built on Debian", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, tail(stderr.String()))
	}
	return out, nil
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}
