// Command overlay measures a machine's copy of a master through the launcher beside plain QEMU: a guest's first boot over a copy
// on write, on the same kind of overlay; and a whole clone beside `qemu-img convert`.
//
//	bin/measure/overlay [-rounds 5] [-master bin/images/guest/guest.img]
//
// It needs root, what `go run ./hack/images all` makes and what hack/packages lists, and writes bench/overlay/results.md. A boot
// counts from the start of QEMU's process, so libvirt's part is in it. The time of a clone is the difference between the start of
// QEMU in a launcher with a clone and in one with an overlay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-vm/berth/bench/beside"
)

// The goals: how many times as long the launcher may take.
const (
	goalBoot  = 1.1
	goalClone = 1.2
)

func main() {
	rounds := flag.Int("rounds", 5, "how often each side is measured, in turns; the median counts")
	master := flag.String("master", "bin/images/guest/guest.img", "raw `disk` with a guest that says berth-guest on its serial port")
	out := flag.String("o", "bench/overlay/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, err := measure(ctx, *master, *rounds)
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

// took are the times of both sides, a round each.
type took struct{ launcher, plain []time.Duration }

func (t took) ratio() float64 { return median(t.launcher).Seconds() / median(t.plain).Seconds() }

func measure(ctx context.Context, master string, rounds int) (string, error) {
	dir, err := beside.Room("", "overlay-bench")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	net, err := beside.NewNamespace(ctx)
	if err != nil {
		return "", err
	}
	defer net.Close()
	b := &bench{dir: dir, net: net, master: filepath.Join(dir, "guest.img")}
	if err := beside.Command(ctx, "cp", "--sparse=always", master, b.master); err != nil { // the launcher's user will own it
		return "", err
	}
	if b.launcher, err = beside.Build(ctx, dir); err != nil {
		return "", err
	}
	if b.full, err = b.writeFull(); err != nil {
		return "", err
	}
	var boot, clone took
	for i := range rounds {
		if err := errors.Join(b.boots(ctx, i, &boot), b.clones(ctx, i, &clone)); err != nil {
			return "", fmt.Errorf("round %d: %w", i, err)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Copies through the launcher beside plain QEMU\n\nMeasured %s, emulated; medians of %d rounds in turns. The ratio is the launcher's time by the other's. `make bench-copies`\n\n",
		time.Now().UTC().Format(time.DateOnly), rounds)
	text.WriteString("| | launcher | without it | ratio | goal |\n|---|---|---|---|---|\n")
	row := func(name string, t took, goal float64) error {
		fmt.Fprintf(&text, "| %s | %.2f s | %.2f s | %.2f | %.1f |\n", name, median(t.launcher).Seconds(), median(t.plain).Seconds(), t.ratio(), goal)
		if t.ratio() > goal {
			return fmt.Errorf("%s: %.2f times as long; %.1f is the most", name, t.ratio(), goal)
		}
		return nil
	}
	err = errors.Join(row("first boot over a copy on write, until the guest's first line", boot, goalBoot),
		row(fmt.Sprintf("a whole clone of %d MiB, beside `qemu-img convert`", fullSize>>20), clone, goalClone))
	return text.String(), err
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
