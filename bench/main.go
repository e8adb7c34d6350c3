// Command bench measures the worker beside what people use today and beside what the machine can do at best. It makes
// its own images, serves them over loopback, runs everyone in turn, and writes bench/results.md and bench/results.svg.
//
// It knows commands and the wall clock. It runs the worker as a program, as a pod would, and never looks inside it but
// to profile it (-profile).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

type options struct {
	runs     int
	only     string
	data     int64
	disk     int64
	cache    string
	worker   string
	results  string
	profile  string
	importer string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == measureVerb {
		measureOne(os.Args[2:])
	}
	var o options
	flag.IntVar(&o.runs, "runs", 5, "how often everyone runs, in turn")
	flag.StringVar(&o.only, "only", "", "letters of the `works` to measure, like a,b,clone; default: all")
	flag.Int64Var(&o.data, "data", 1000, "`MB` of files on the disk")
	flag.Int64Var(&o.disk, "disk", 8192, "size of the disk in `MiB`")
	flag.StringVar(&o.cache, "cache", ".cache/bench", "`directory` for images and output")
	flag.StringVar(&o.worker, "worker", "bin/worker", "the worker's `program`")
	flag.StringVar(&o.results, "results", "bench", "`directory` for results.md and results.svg")
	flag.StringVar(&o.profile, "profile", "", "run one `work` in this process and write its CPU profile to the cache")
	flag.StringVar(&o.importer, "importer", "", "the `archive` of the image of CDI's importer: measure it and the worker alone, and write importer.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, stdout io.Writer) (err error) {
	cache, err := filepath.Abs(o.cache)
	if err != nil {
		return err
	}
	if o.worker, err = filepath.Abs(o.worker); err != nil {
		return err
	}
	if err := needed(o.worker); err != nil {
		return err
	}
	if o.importer != "" {
		if _, err := os.Stat(o.importer); err != nil {
			return fmt.Errorf("the image of CDI's importer: %w; `make bench-peers` makes it", err)
		}
	}
	set := &images{dir: filepath.Join(cache, fmt.Sprintf("%dMB-in-%dMiB", o.data, o.disk)), log: stdout, data: o.data, disk: o.disk}
	works := chosen(o.only)
	if o.profile != "" {
		works = chosen(o.profile)
	}
	if o.importer != "" {
		works = besideImporter(works)
	}
	if len(works) == 0 {
		return fmt.Errorf("none of the works is called %q", o.only+o.profile)
	}
	b := &bench{options: o, images: set, out: filepath.Join(cache, "out"), log: stdout, samples: map[string][]sample{}}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(ctx, works); err != nil {
		return err
	}
	if o.profile != "" {
		return b.profileWork(ctx, works[0])
	}
	if err := b.measure(ctx, works); err != nil {
		return err
	}
	if o.importer != "" {
		return b.reportImporter(works)
	}
	return b.report(works)
}

// needed returns what has to be installed.
func needed(worker string) error {
	if _, err := os.Stat(worker); err != nil {
		return fmt.Errorf("the worker: %w; run `make build` first", err)
	}
	var missing []string
	for program, pkg := range map[string]string{
		"qemu-img": "qemu-utils and qemu-block-extra", "nginx": "nginx-light", "curl": "curl", "pigz": "pigz", "xz": "xz-utils",
		"zstd": "zstd", "mke2fs": "e2fsprogs", "mkfs.xfs": "xfsprogs", "tar": "tar",
	} {
		if !installed(program) {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("install %s", strings.Join(missing, ", "))
	}
	return nil
}

func installed(program string) bool {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if s, err := os.Stat(filepath.Join(dir, program)); err == nil && s.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}
