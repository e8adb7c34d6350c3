// Command stream measures a guest that boots while its disk is imported, beside the same guest on a disk that is there already and
// beside the import alone; and a LUN of a stream beside a file.
//
//	bin/measure/stream [-rounds 2] [-guest bin/images/guest/guest.img] [-data 1000] [-rate 50]
//
// It needs root, what `go run ./hack/images all` makes and what hack/packages lists, and writes bench/stream/results.md. The disk has 8 GiB,
// some data besides the guest's own, and is a qcow2 file on a web server of so many MB a second. Times count from the start of the worker, or
// of the launcher where the disk is there already; Kubernetes has no part in them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/berth-vm/berth/bench/beside"
)

// The goals: how many times as long, or as much, it may be.
const (
	goalBoot   = 1.5
	goalImport = 1.15
	goalBytes  = 1.1
)

func main() {
	rounds := flag.Int("rounds", 2, "how often each side is measured, in turns; the median counts")
	guest := flag.String("guest", "bin/images/guest/guest.img", "raw `disk` with a guest that says berth-guest on its serial port")
	data := flag.Int64("data", 1000, "MB of data besides")
	rate := flag.Int64("rate", 50, "MB a second that the server sends")
	out := flag.String("o", "bench/stream/results.md", "`file` to write")
	onlyLUN := flag.Bool("only-lun", false, "measure only how a LUN of a stream is read")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var report string
	var err error
	if !*onlyLUN {
		report, err = measure(ctx, *guest, *data*1e6, *rate*1e6, *rounds)
	}
	line, lunErr := lun(ctx)
	report, err = report+line, errors.Join(err, lunErr)
	stop()
	if report != "" {
		err = errors.Join(err, os.WriteFile(*out, []byte(report), 0o644))
	}
	fmt.Fprint(os.Stdout, report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// took holds the durations of one round.
type took struct {
	local, early    []time.Duration // until the guest's first line
	alone, together []time.Duration // until the import was done
	read            []int64         // bytes from the server while a guest ran
}

func measure(ctx context.Context, guest string, data, rate int64, rounds int) (string, error) {
	dir, err := beside.Room("", "stream-bench")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	net, err := beside.NewNamespace(ctx)
	if err != nil {
		return "", err
	}
	defer net.Close()
	b := &bench{dir: dir, net: net}
	if err := b.prepare(ctx, guest, data, rate); err != nil {
		return "", err
	}
	defer b.server.Close()
	var t took
	for i := range rounds {
		sides := []func(context.Context, *took) error{b.imports, b.boots}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(ctx, &t); err != nil {
				return "", fmt.Errorf("round %d: %w", i, err)
			}
		}
	}
	return write(t, b.size, rate, rounds)
}

func write(t took, size, rate int64, rounds int) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "# A guest that boots while its disk is imported\n\nMeasured %s, emulated; medians of %d rounds in turns. The disk has 8 GiB, its qcow2 file %d MB, the server sends %d MB/s. `make bench-stream`\n\n",
		time.Now().UTC().Format(time.DateOnly), rounds, size/1e6, rate/1e6)
	text.WriteString("| | early | beside | ratio | goal |\n|---|---|---|---|---|\n")
	var all error
	row := func(name, unit string, early, beside, goal float64) {
		fmt.Fprintf(&text, "| %s | %.2f %s | %.2f %s | %.2f | %.2f |\n", name, early, unit, beside, unit, early/beside, goal)
		if early/beside > goal {
			all = errors.Join(all, fmt.Errorf("%s: %.2f times; %.2f is the most", name, early/beside, goal))
		}
	}
	early, local, alone := median(t.early).Seconds(), median(t.local).Seconds(), median(t.alone).Seconds()
	row("until the guest's first line, beside a disk that is there", "s", early, local, goalBoot)
	row("until the import is done, beside one without a guest", "s", median(t.together).Seconds(), alone, goalImport)
	row("read from the server, beside the image", "MB", float64(median(t.read))/1e6, float64(size)/1e6, goalBytes)
	fmt.Fprintf(&text, "\nA machine that waits for its import has its guest's first line after %.2f s, %.1f times as late.\n", alone+local, (alone+local)/early)
	return text.String(), all
}

func median[T ~int64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
