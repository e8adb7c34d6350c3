// Command vm measures how long a machine takes from being created to its guest's first line, step by step, and how many
// writes to the API server that is; with a class that waits for its first consumer and with one that does not. It needs a
// cluster with Berth on it and the test guest, and writes bench/vm/results.md.
//
//	bin/measure/vm [-kubeconfig .kubebox/kubeconfig] [-n 5]
//
// It does not measure the transfer: the disk is small and blank, and the guest's kernel comes from a container image.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	kubeconfig := flag.String("kubeconfig", ".kubebox/kubeconfig", "`file` that names the cluster")
	waits := flag.String("waits", "local", "class that waits for its first consumer")
	immediate := flag.String("immediate", "immediate", "class that does not")
	count := flag.Int("n", 5, "machines of each, one after another")
	out := flag.String("o", "bench/vm/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, err := measure(ctx, *kubeconfig, []string{*immediate, *waits}, *count)
	stop()
	if err == nil {
		err = os.WriteFile(*out, []byte(report), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Fprint(os.Stdout, report)
}

// goal is how much the way over a consumer may cost.
const goal = 3 * time.Second

func measure(ctx context.Context, kubeconfig string, classes []string, count int) (string, error) {
	b, err := open(ctx, kubeconfig)
	if err != nil {
		return "", err
	}
	defer b.leave()
	runs := map[string][]run{}
	for i := range count {
		for _, class := range classes { // in turn, so that both have the same machine to themselves
			r, err := b.machine(ctx, fmt.Sprintf("bench%d-%s", i, class), class)
			if err != nil {
				return "", err
			}
			runs[class] = append(runs[class], r)
		}
	}
	return table(classes, runs, count), nil
}

func table(classes []string, runs map[string][]run, count int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# From create to the guest's first line\n\nMeasured %s; medians of %d machines of each class, one after another, emulated. `make bench-vm`\n\n",
		time.Now().UTC().Format(time.DateOnly), count)
	fmt.Fprintf(&text, "| seconds since create | %s | waits for its first consumer: %s |\n|---|---|---|\n", classes[0], classes[1])
	for _, s := range steps {
		fmt.Fprintf(&text, "| %s |", s)
		for _, class := range classes {
			fmt.Fprintf(&text, " %s |", seconds(median(runs[class], s)))
		}
		text.WriteString("\n")
	}
	text.WriteString("| writes to its objects, by anybody |")
	for _, class := range classes {
		var writes []int
		for _, r := range runs[class] {
			writes = append(writes, r.writes)
		}
		slices.Sort(writes)
		fmt.Fprintf(&text, " %d |", writes[len(writes)/2])
	}
	cost := median(runs[classes[1]], guestRuns) - median(runs[classes[0]], guestRuns)
	words := fmt.Sprintf("costs %s s", seconds(cost))
	if cost <= 0 {
		words = fmt.Sprintf("takes %s s less", seconds(-cost)) // the launcher's pod starts while the disk is filled
	}
	fmt.Fprintf(&text, "\n\nThe way over a consumer %s until the guest runs (goal: at most %s s more).\n", words, seconds(goal))
	return text.String()
}

// median returns the median time of a step; 0 where it does not happen.
func median(all []run, s step) time.Duration {
	var times []time.Duration
	for _, r := range all {
		if t, ok := r.at[s]; ok {
			times = append(times, t)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}
