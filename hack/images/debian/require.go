package debian

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// ReadList reads a file of package names: one per line, "#" starts a comment.
func ReadList(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open package list: %w", err)
	}
	defer func() { _ = f.Close() }()
	var names []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		names = append(names, strings.Fields(line)...)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read package list %s: %w", path, err)
	}
	return names, nil
}

// Require makes sure that packages are installed on this machine. If the process is root, it installs the missing ones; otherwise
// the error says how to install them.
func Require(ctx context.Context, progress io.Writer, names []string) error {
	missing, err := notInstalled(ctx, names)
	if err != nil || len(missing) == 0 {
		return err
	}
	install := append([]string{"install", "--yes", "--no-install-recommends"}, missing...)
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages are missing; run: sudo apt-get update && sudo apt-get %s", strings.Join(install, " "))
	}
	_, _ = fmt.Fprintf(progress, "installing %s\n", strings.Join(missing, " "))
	if _, err := run(ctx, "", "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=300"}, install...)...); err == nil {
		return nil
	}
	// The index is missing or older than the archive.
	if _, err := run(ctx, "", "apt-get", "-qq", "update"); err != nil {
		return fmt.Errorf("update apt's index: %w", err)
	}
	if _, err := run(ctx, "", "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=300"}, install...)...); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	return nil
}

func notInstalled(ctx context.Context, names []string) ([]string, error) {
	// dpkg-query fails for an unknown name, so all states are read and ours looked up.
	out, err := run(ctx, "", "dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n")
	if err != nil {
		return nil, fmt.Errorf("list installed packages: %w", err)
	}
	installed := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " installed"); ok {
			installed[name] = true
		}
	}
	var missing []string
	for _, name := range names {
		if !installed[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
