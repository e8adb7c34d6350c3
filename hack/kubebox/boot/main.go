// Command boot builds kubebox, showing how far it is, and hands over to it. It exists because the first build takes minutes, and
// imports nothing but the standard library because it is to start at once: `go -C hack/kubebox run ./boot up`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/berth-vm/berth/hack/kubebox/internal/build"
)

func main() {
	program, err := prepare(context.Background())
	if err == nil && len(os.Args) > 1 {
		err = syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()) //nolint:gosec // handing its arguments over is all it does
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubebox:", err)
		os.Exit(1)
	}
}

// prepare builds bin/kubebox in the checkout and makes bin/kubectl another name of it.
func prepare(ctx context.Context) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	source, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find source: %w", err)
	}
	if _, err := os.Stat(filepath.Join(source, "boot", "main.go")); err != nil {
		return "", errors.New("run this in hack/kubebox: `go -C hack/kubebox run ./boot up`")
	}
	bin := filepath.Join(source, "..", "..", "bin")
	program := filepath.Join(bin, "kubebox")
	if err := build.Build(ctx, source, build.Kubebox, program, os.Stdout); err != nil {
		return "", err
	}
	if err := os.Symlink("kubebox", filepath.Join(bin, "kubectl")); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("link kubectl: %w", err)
	}
	return program, nil
}
