package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/version"
)

// maker makes one release.
type maker struct {
	root, dist string
	is         version.Info
	date       time.Time // of the commit; the time of everything that must have one
	arches     string
	url        string // where the files of the release will be
	log        io.Writer
}

// released is a version as Go, Helm and krew all take it.
var released = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

func runMake(ctx context.Context, args []string, log io.Writer) error {
	var o options
	flags := flag.NewFlagSet("make", flag.ContinueOnError)
	wanted := flags.String("version", "", "version of the release, such as v0.2.0")
	arches := flags.String("arch", "amd64,arm64", "architectures of the images, separated by commas")
	quick := flags.Bool("quick", false, "for tests: images for amd64 alone, and virtctl for Linux on amd64 alone")
	url := flags.String("url", "https://github.com/berth-vm/berth/releases/download", "where the files of releases are downloaded from")
	if err := o.parse(ctx, flags, args); err != nil {
		return err
	}
	is, err := stateOf(ctx, o.root, *wanted)
	if err != nil {
		return err
	}
	m := &maker{root: o.root, dist: o.dist, is: is, arches: *arches, url: *url + "/" + is.Version, log: log}
	if *quick {
		m.arches, platforms = "amd64", platforms[:1]
	}
	if m.date, err = time.Parse(time.RFC3339, is.Date); err != nil {
		return fmt.Errorf("read the date of the commit: %w", err)
	}
	return m.make(ctx)
}

// stateOf returns the version that a clean tree becomes.
func stateOf(ctx context.Context, root, wanted string) (version.Info, error) {
	is := version.Info{Version: wanted}
	if !released.MatchString(wanted) {
		return is, fmt.Errorf("%q is no version: it must be like v0.2.0 or v0.2.0-rc.1 (make release VERSION=v0.2.0)", wanted)
	}
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "TZ=UTC")
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	changed, err := git("status", "--porcelain")
	if err != nil {
		return is, err
	}
	if changed != "" {
		files := strings.Split(changed, "\n")
		return is, fmt.Errorf("the tree has %d files that are in no commit (%s): a release is made from a commit alone",
			len(files), strings.Join(strings.Fields(files[0])[1:], " "))
	}
	if is.Commit, err = git("rev-parse", "HEAD"); err != nil {
		return is, err
	}
	is.Date, err = git("log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd")
	return is, err
}

// make writes all files to a temporary directory and renames it when all are complete.
func (m *maker) make(ctx context.Context) error {
	place := m.dist
	m.dist = place + ".partial"
	if err := errors.Join(os.RemoveAll(m.dist), os.MkdirAll(m.dist, 0o755)); err != nil {
		return fmt.Errorf("make folder for the release: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"images", m.images}, {"programs", m.programs}, {"manifests and chart", m.manifests}, {"SBOMs", m.sboms}, {"checksums", m.sums},
	} {
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		_, _ = fmt.Fprintf(m.log, "%s done in %.1f s\n", step.name, time.Since(start).Seconds())
	}
	if err := os.RemoveAll(place); err != nil {
		return fmt.Errorf("remove the release that was there: %w", err)
	}
	if err := os.Rename(m.dist, place); err != nil {
		return fmt.Errorf("keep the release: %w", err)
	}
	m.dist = place
	_, _ = fmt.Fprintf(m.log, "%s is in %s; make push REGISTRY=HOST/PATH brings its images to a registry\n", m.is.Version, place)
	return nil
}

// imagesDir is the OCI layout in a release.
const imagesDir = "images"

// images has hack/images make the OCI layout.
func (m *maker) images(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./hack/images", "-layout", filepath.Join(m.dist, imagesDir), "-arch", m.arches,
		"-version", m.is.Version, "-commit", m.is.Commit, "-date", m.is.Date, "berth", "launcher", "csi")
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.root, m.log, m.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	return nil
}

// write writes a file of the release.
func (m *maker) write(name string, text []byte) error {
	path := filepath.Join(m.dist, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder for %s: %w", name, err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
