package debian

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// indexAge is how old the index of another architecture may be: one day's build has the packages of that day.
const indexAge = 24 * time.Hour

// Prepare gets apt's index of the packages of c.Arch, from the machine's own sources, into the cache. Neither the machine's own index nor
// its list of architectures is touched. For the machine's own architecture it has nothing to do.
func (c Cache) Prepare(ctx context.Context) error {
	if c.Arch == "" {
		return nil
	}
	stamp := c.index("updated")
	if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) < indexAge {
		return nil
	}
	if err := os.MkdirAll(c.index("lists", "partial"), 0o755); err != nil {
		return fmt.Errorf("make folder for the index of %s: %w", c.Arch, err)
	}
	if err := os.WriteFile(c.index("status"), nil, 0o644); err != nil {
		return fmt.Errorf("make the list of what is installed: %w", err)
	}
	// As root, apt would download as its own user, who cannot write here.
	if _, err := run(ctx, "", "apt-get", c.options("-o", "APT::Sandbox::User=root", "update")...); err != nil {
		return fmt.Errorf("get the index of Debian's packages for %s: %w", c.Arch, err)
	}
	if err := os.WriteFile(stamp, nil, 0o644); err != nil {
		return fmt.Errorf("keep the index: %w", err)
	}
	return nil
}

// index returns a file of what apt keeps for c.Arch.
func (c Cache) index(elem ...string) string {
	return filepath.Join(append([]string{c.Dir, "index-" + c.Arch}, elem...)...)
}

// options are arguments of apt-get, after those that make it ask for c.Arch.
func (c Cache) options(args ...string) []string {
	quiet := []string{"-qq"}
	if c.Arch != "" {
		quiet = append(quiet,
			"-o", "APT::Architecture="+c.Arch, "-o", "APT::Architectures::="+c.Arch, "-o", "Debug::NoLocking=1",
			"-o", "Dir::State::lists="+c.index("lists"), "-o", "Dir::State::status="+c.index("status"),
			// what apt computed of the machine's own index is not for this one
			"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
	}
	return append(quiet, args...)
}
