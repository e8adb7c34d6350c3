// Command export measures how disks leave the cluster: the server of an export, as a process of its own, sends one over TLS on loopback;
// as raw bytes beside plain reads of the same disk, and as a qcow2 image, which is written to a file, beside `qemu-img convert`. It writes
// bench/export/results.md.
//
//	bin/measure/export [-runs 3] [-data 512] [-disk 1024]
//
// It needs bin/worker and what hack/packages lists. The page cache is dropped before each run, and written data is synced at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type options struct {
	runs       int
	data, disk int64
	dir        string
	worker     string
	results    string
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 3, "how often everyone runs, in turn")
	flag.Int64Var(&o.data, "data", 512, "`MiB` of data in the disk")
	flag.Int64Var(&o.disk, "disk", 1024, "size of the disk in `MiB`")
	flag.StringVar(&o.dir, "cache", ".cache/bench/export", "`directory` for the disk and what is made of it")
	flag.StringVar(&o.worker, "worker", "bin/worker", "the worker's `program`")
	flag.StringVar(&o.results, "results", "bench/export/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "export:", err)
		os.Exit(1)
	}
}

// The works, in turn, so that whatever else the machine does hits all alike.
const (
	read    = "plain reads"
	sent    = "sent as raw bytes"
	convert = "qemu-img convert to qcow2"
	image   = "sent as qcow2, to a file"
	packed  = "sent as gzip"
)

func run(ctx context.Context, o options, log io.Writer) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	disk, out := filepath.Join(dir, "disk.img"), filepath.Join(dir, "out.qcow2")
	if err := makeDisk(disk, o.data<<20, o.disk<<20); err != nil {
		return err
	}
	s, err := serve(ctx, o.worker, dir, disk)
	if err != nil {
		return err
	}
	defer s.stop()
	works := []struct {
		name string
		do   func() error
	}{
		{read, func() error { return readDisk(disk) }},
		{sent, func() error { return s.get(ctx, "disk.img", nothing) }},
		{convert, func() error { return qemuImg(ctx, disk, out) }},
		{image, func() error { return s.toFile(ctx, "disk.qcow2", out) }},
		{packed, func() error { return s.get(ctx, "disk.img.gz", nothing) }},
	}
	times := map[string][]float64{}
	for n := range o.runs {
		for _, w := range works {
			if err := forget(disk); err != nil {
				return err
			}
			start := time.Now()
			if err := w.do(); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			took := time.Since(start).Seconds()
			times[w.name] = append(times[w.name], took)
			fmt.Fprintf(log, "%d/%d %-28s %6.2f s\n", n+1, o.runs, w.name, took)
		}
	}
	if text, err := exec.CommandContext(ctx, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", disk, out).CombinedOutput(); err != nil {
		return fmt.Errorf("the image is another disk: %w: %s", err, text)
	}
	return report(o, times, log)
}

// makeDisk makes a disk with data in eight places of it.
func makeDisk(path string, data, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const parts = 8
	noise := rand.NewChaCha8([32]byte{1})
	for i := range int64(parts) {
		if _, err := io.Copy(io.NewOffsetWriter(f, size/parts*i), io.LimitReader(noise, data/parts)); err != nil {
			return fmt.Errorf("make a disk: %w", err)
		}
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

// forget drops a file from the cache of this machine.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop %s from the cache: %w", path, err)
	}
	return nil
}

func readDisk(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return err
}

func qemuImg(ctx context.Context, disk, out string) error {
	text, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-t", "writeback", disk, out).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return toDisk(out)
}

func toDisk(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func median(t []float64) float64 {
	t = slices.Sorted(slices.Values(t))
	return (t[len(t)/2] + t[(len(t)-1)/2]) / 2
}

// The goals: how many times as long it may take.
const (
	rawGoal   = 1.3 // as reading the disk
	qcow2Goal = 1.0 // as qemu-img convert
)

func report(o options, times map[string][]float64, log io.Writer) error {
	text := fmt.Sprintf("# Disks that leave the cluster\n\n%d MiB of data in a disk of %d MiB, not in the cache; medians of %d runs in turn, server and client on one "+
		"machine, over TLS. Made by `make bench-export`.\n\n| work | seconds (least to most) |\n|---|---|\n", o.data, o.disk, o.runs)
	for _, name := range []string{read, sent, convert, image, packed} {
		t := times[name]
		text += fmt.Sprintf("| %s | %.2f (%.2f to %.2f) |\n", name, median(t), slices.Min(t), slices.Max(t))
	}
	raw, qcow2 := median(times[sent])/median(times[read]), median(times[image])/median(times[convert])
	verdict := map[bool]string{true: "met", false: "not met"}
	text += fmt.Sprintf("\n| goal | value | |\n|---|---|---|\n| raw bytes in at most %.1fx the time of reading the disk | %.2fx | %s |\n"+
		"| a qcow2 image in at most %.1fx the time of qemu-img convert | %.2fx | %s |\n", rawGoal, raw, verdict[raw <= rawGoal], qcow2Goal, qcow2,
		verdict[qcow2 <= qcow2Goal])
	fmt.Fprint(log, text)
	return os.WriteFile(o.results, []byte(text), 0o644)
}
