// Command backup measures restores: a disk out of a chain of ten backups beside the same disk out of one qcow2 image, by the worker's own data plane;
// a last stage of an import; and a backup that is written, beside `qemu-img convert`. It also restores random histories and compares every
// block, and has sets damaged at random refused. It writes bench/backup/results.md.
//
//	bin/measure/backup [-runs 5] [-data 512] [-disk 1024] [-histories 100] [-wrong 100]
//
// It needs what hack/packages lists. What is read is not in the cache, and what is written is on the disk at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/backup"
)

type options struct {
	runs, histories, wrong int
	data, disk             int64
	dir, results           string
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 5, "how often each work runs, in turn")
	flag.IntVar(&o.histories, "histories", 100, "how many random histories are restored and compared")
	flag.IntVar(&o.wrong, "wrong", 100, "how many damaged sets are tried")
	flag.Int64Var(&o.data, "data", 512, "`MiB` of data in the disk")
	flag.Int64Var(&o.disk, "disk", 1024, "size of the disk in `MiB`")
	flag.StringVar(&o.dir, "cache", ".cache/bench/backup", "`directory` for what is made")
	flag.StringVar(&o.results, "results", "bench/backup/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "backup:", err)
		os.Exit(1)
	}
}

// The works, in turn, so that whatever else the machine does hits all alike.
const (
	one     = "restored from one qcow2 image"
	chained = "restored from a chain of 10 backups"
	plain   = "restored from the same files, without sums"
	convert = "qemu-img convert to qcow2"
	written = "written as a full backup, with sums"
	stage   = "a last stage of 64 MiB, applied"
)

var works = []string{one, chained, plain, convert, written, stage}

const links = 10

type bench struct {
	options
	log   io.Writer
	set   *set
	flat  string // one image with what the disk is at the end
	times map[string][]float64
	cpu   map[string][]float64 // seconds of processors, of this program and of those that it ran
	load  string               // of the machine, when the last work ended
	used  float64              // when the work under way began
}

func run(ctx context.Context, o options, log io.Writer) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, log: log, times: map[string][]float64{}, cpu: map[string][]float64{}}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for n := range o.runs {
		for _, name := range works {
			took, err := b.time(ctx, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			b.times[name] = append(b.times[name], took)
			fmt.Fprintf(log, "%d/%d %-44s %6.2f s, processors %.2f s\n", n+1, o.runs, name, took, b.cpu[name][n])
		}
	}
	if b.load, err = loadOf(); err != nil {
		return err
	}
	differing, err := histories(ctx, filepath.Join(dir, "histories"), o.histories)
	if err != nil {
		return err
	}
	accepted, err := wrong(ctx, filepath.Join(dir, "wrong"), o.wrong)
	if err != nil {
		return err
	}
	return b.report(differing, accepted)
}

// prepare writes the chain, and the image with the same data.
func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.set, err = newSet(filepath.Join(b.dir, "set"), b.disk<<20, b.data<<20, 1); err != nil {
		return err
	}
	for n := range links {
		if n > 0 {
			if err := b.set.change(int(b.data) * 16 / 20); err != nil { // a twentieth of the data, in blocks of 64 KiB
				return err
			}
		}
		if err := b.set.back(ctx); err != nil {
			return err
		}
	}
	b.flat = filepath.Join(b.dir, "flat.qcow2")
	return b.qemuImg(ctx, b.flat)
}

func (b *bench) qemuImg(ctx context.Context, out string) error {
	text, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-t", "writeback", b.set.path, out).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return toDisk(out)
}

// time runs a work once, on files that are not in the cache.
func (b *bench) time(ctx context.Context, name string) (float64, error) {
	if err := b.forget(); err != nil {
		return 0, err
	}
	out := filepath.Join(b.dir, "out")
	var do func() error
	switch name {
	case one:
		do = func() error { return restore(ctx, task.Source{Local: &task.Local{Path: b.flat}}, out) }
	case chained:
		do = func() error { return restore(ctx, b.set.source(links-1), out) }
	case plain:
		do = func() error { return restore(ctx, b.set.files(links-1), out) }
	case convert:
		do = func() error { return b.qemuImg(ctx, out) }
	case written:
		do = func() error {
			_, err := backup.Write(ctx, out, backup.Plan{Checkpoint: "b", Disks: []backup.Source{b.set.whole()}})
			return err
		}
		if err := os.Mkdir(out, 0o755); err != nil {
			return 0, err
		}
	case stage:
		return b.lastStage(ctx, out)
	}
	begin := time.Now()
	b.used = processors()
	err := do()
	took := time.Since(begin).Seconds()
	b.cpu[name] = append(b.cpu[name], processors()-b.used)
	if name == one || name == chained || name == plain {
		if err == nil {
			err = same(out, b.set.path)
		}
	}
	if err != nil {
		return 0, err
	}
	return took, os.RemoveAll(out)
}

// forget drops the files that are read from the page cache.
func (b *bench) forget() error {
	return filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path) //nolint:gosec // G122: this program made the directory, for itself
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// restore has the worker's data plane bring a disk.
func restore(ctx context.Context, from task.Source, to string) error {
	r := transfer.New(task.Task{Version: task.Version, Volume: "bench/disk", Source: from, Target: task.Target{Path: to, Content: task.Disk}}).Run(ctx)
	if r.Outcome != task.Done {
		return fmt.Errorf("%s: %s", r.Reason, r.Detail)
	}
	return nil
}

// processors returns the CPU seconds used until now.
func processors() (seconds float64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			seconds += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return seconds
}

// loadOf is the average of the last five minutes.
func loadOf() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return "", fmt.Errorf("the load is %q", text)
	}
	return fields[1], nil
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

// The bars.
const (
	chainGoal = 0.8 // of the speed of one image
	stageGoal = 5.0 // seconds
	writeGoal = 1.0 // times as long as qemu-img convert
)

func (b *bench) report(differing, accepted int) error {
	text := fmt.Sprintf("# Backups and restores\n\n%d MiB of data in a disk of %d MiB; the chain is a full backup and %d increments, each of a twentieth of it. Files that are read are not in the "+
		"cache. Medians of %d runs in turn, on one machine with a load of %s when they ended. Made by `make bench-backup`.\n\n| work | seconds (least to most) | of processors |\n|---|---|---|\n", b.data, b.disk, links-1, b.runs, b.load)
	for _, name := range works {
		t := b.times[name]
		text += fmt.Sprintf("| %s | %.2f (%.2f to %.2f) | %.2f |\n", name, median(t), slices.Min(t), slices.Max(t), median(b.cpu[name]))
	}
	verdict := map[bool]string{true: "met", false: "not met"}
	speed, last, write := median(b.times[one])/median(b.times[chained]), median(b.times[stage]), median(b.times[written])/median(b.times[convert])
	text += fmt.Sprintf("\n| goal | value | |\n|---|---|---|\n"+
		"| a chain of %d at %.1f or more of the speed of one image with the same data | %.2f | %s |\n"+
		"| a last stage of 64 MiB in at most %.0f s | %.2f s | %s |\n"+
		"| a disk as qcow2, by the writer of backups, in at most %.1fx the time of qemu-img convert | %.2fx | %s |\n"+
		"| no block differs in %d restores of random histories | %d | %s |\n"+
		"| none of %d sets that were damaged at random is accepted | %d | %s |\n",
		links, chainGoal, speed, verdict[speed >= chainGoal], stageGoal, last, verdict[last <= stageGoal], writeGoal, write, verdict[write <= writeGoal],
		b.histories, differing, verdict[differing == 0], b.wrong, accepted, verdict[accepted == 0])
	fmt.Fprint(b.log, text)
	return os.WriteFile(b.results, []byte(text), 0o644)
}
