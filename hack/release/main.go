// Command release makes what others install Berth from, and brings it to a registry:
//
//	release make -version v0.2.0          dist/: manifests, chart, images, programs, SBOMs, checksums
//	release push -registry HOST/PATH      the images of dist/ to a registry
//	release manifest -registry HOST/PATH [berth|berth-data]
//	                                      a manifest of dist/ with its images at that registry, on standard output
//
// A release is a function of the commit and of the Debian packages that images are made from: made again, it has the same digests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	usage := errors.New("say what to do: release make | push | manifest")
	if len(args) == 0 {
		return usage
	}
	switch verb, args := args[0], args[1:]; verb {
	case "make":
		return runMake(ctx, args, stderr)
	case "push":
		return runPush(ctx, args, stdout)
	case "manifest":
		return runManifest(ctx, args, stdout)
	}
	return usage
}

// checkout returns the folder of Berth's own module, which this one is a part of.
func checkout(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// options are the options of all commands.
type options struct {
	root, dist string
}

// parse reads a verb's flags; further arguments are left in the set.
func (o *options) parse(ctx context.Context, flags *flag.FlagSet, args []string) error {
	flags.StringVar(&o.dist, "dist", "", "folder of the release (default dist in the checkout)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if o.root, err = checkout(ctx); err != nil {
		return err
	}
	if o.dist == "" {
		o.dist = filepath.Join(o.root, "dist")
	}
	return nil
}
