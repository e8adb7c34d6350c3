// Command upload measures an upload through the proxy beside a plain TLS copy of the same bytes: client, proxy and worker
// are processes of their own on loopback, as they are in a cluster, and both ends write to a file and fsync it. It writes
// bench/upload/results.md.
//
// It knows no cluster: the proxy finds its one worker without asking an API server.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

type options struct {
	runs    int
	data    int64
	disk    int64
	dir     string
	worker  string
	results string
}

func main() {
	if len(os.Args) > 2 {
		if part, ok := parts[os.Args[1]]; ok {
			if err := part(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	var o options
	flag.IntVar(&o.runs, "runs", 5, "how often everyone runs, in turn")
	flag.Int64Var(&o.data, "data", 1000, "`MB` that are sent")
	flag.Int64Var(&o.disk, "disk", 8192, "size of the sparse disk in `MiB`")
	flag.StringVar(&o.dir, "cache", ".cache/bench/upload", "`directory` for images and output")
	flag.StringVar(&o.worker, "worker", "bin/worker", "the worker's `program`")
	flag.StringVar(&o.results, "results", "bench/upload/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "upload:", err)
		os.Exit(1)
	}
}

// The works. Each is measured in turn, so that whatever else the machine does hits all alike.
const (
	plain  = "plain TLS copy"
	raw    = "raw disk through the proxy"
	sparse = "sparse disk through the proxy"
)

func run(ctx context.Context, o options, log io.Writer) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if o.worker, err = filepath.Abs(o.worker); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := prepare(dir, o)
	if err != nil {
		return err
	}
	times := map[string][]float64{}
	for n := range o.runs {
		for name, send := range map[string]func(context.Context) (time.Duration, error){
			plain:  b.plain,
			raw:    func(ctx context.Context) (time.Duration, error) { return b.upload(ctx, b.rawFile) },
			sparse: func(ctx context.Context) (time.Duration, error) { return b.upload(ctx, b.sparseFile) },
		} {
			took, err := send(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			times[name] = append(times[name], took.Seconds())
			fmt.Fprintf(log, "%d/%d %-30s %6.2f s\n", n+1, o.runs, name, took.Seconds())
		}
	}
	return report(o, times, log)
}

func median(t []float64) float64 {
	t = slices.Sorted(slices.Values(t))
	return (t[len(t)/2] + t[(len(t)-1)/2]) / 2
}

// The goals.
const (
	rawGoal    = 0.8 // of the plain copy's throughput
	sparseGoal = 1.3 // times the time of sending the data alone
)

func report(o options, times map[string][]float64, log io.Writer) error {
	text := fmt.Sprintf("# Uploads through the proxy\n\n%d MB of data, alone and in a disk of %d MiB; medians of %d runs in turn, "+
		"client, proxy and worker on one machine. Made by `make bench-upload`.\n\n| work | seconds (least to most) | MB/s |\n|---|---|---|\n",
		o.data, o.disk, o.runs)
	for _, name := range []string{plain, raw, sparse} {
		t := times[name]
		text += fmt.Sprintf("| %s | %.2f (%.2f to %.2f) | %.0f |\n", name, median(t), slices.Min(t), slices.Max(t), float64(o.data)/median(t))
	}
	ratio, sparser := median(times[plain])/median(times[raw]), median(times[sparse])/median(times[raw])
	verdict := map[bool]string{true: "met", false: "not met"}
	text += fmt.Sprintf("\n| goal | value | |\n|---|---|---|\n| at least %.1f of a plain TLS copy's throughput | %.2f | %s |\n"+
		"| a sparse disk in at most %.1fx the time of its data | %.2fx | %s |\n", rawGoal, ratio, verdict[ratio >= rawGoal],
		sparseGoal, sparser, verdict[sparser <= sparseGoal])
	fmt.Fprint(log, text)
	return os.WriteFile(o.results, []byte(text), 0o644)
}
