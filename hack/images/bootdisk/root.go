package bootdisk

import (
	"context"
	"crypto/sha256"
	_ "embed" // the text of this file
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/images/debian"
)

//go:embed root.go
var rootSource string

// unneeded is what a container image of Debian does without, as the slim images do, and what the container's own runtime makes.
var unneeded = []string{"./dev/*", "./proc/*", "./sys/*", "./var/cache/apt/*", "./var/lib/apt/lists/*", "./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*"}

// BuildRoot makes the root filesystem of a container image in dir, as an archive. If the one there was made from the same inputs, it is left alone.
// It needs root.
func BuildRoot(ctx context.Context, in System, dir string) error {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{in.Versions, in.Release, rootSource}, in.Packages...), "\n")))
	inputs, archive := hex.EncodeToString(sum[:]), filepath.Join(dir, debian.Layer)
	made := archive + ".inputs"
	if was, err := os.ReadFile(made); err == nil && string(was) == inputs {
		if _, err := os.Stat(archive); err == nil {
			return nil
		}
	}
	if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the last archive: %w", err)
	}
	work, err := os.MkdirTemp(dir, ".root-")
	if err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	root := filepath.Join(work, "root") // debootstrap gives it the mode of a root directory
	if err := in.bootstrap(ctx, root); err != nil {
		return err
	}
	args := []string{"--create", "--file", archive, "--directory", root, "--sort=name", "--numeric-owner", "--mtime=@315532800"}
	for _, pattern := range unneeded {
		args = append(args, "--exclude="+pattern)
	}
	if err := tool(ctx, "tar", append(args, ".")...); err != nil {
		return err
	}
	return os.WriteFile(made, []byte(inputs), 0o644)
}
