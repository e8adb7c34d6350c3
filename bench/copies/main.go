// Command copies measures machines over one golden claim: how much longer a machine with a copy on write takes to run than one whose
// disk is there already, and what many of them at once cost in time, memory and disk. It needs a cluster of kubebox, whose nodes
// are on this machine, with Berth on it, and writes bench/copies/results.md.
//
//	bin/measure/copies [-kubeconfig .kubebox/kubeconfig] [-n 5] [-machines 100]
//
// It does not measure guests: the machines have none, only their disks. They are all on the golden claim's node.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	kubeconfig := flag.String("kubeconfig", ".kubebox/kubeconfig", "`file` that names the cluster")
	class := flag.String("class", "localdisk-immediate", "class of the golden claim, which binds at once")
	count := flag.Int("n", 5, "machines of each kind, one after another")
	machines := flag.Int("machines", 100, "machines at once over one master, or as many as fit on its node")
	out := flag.String("o", "bench/copies/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, err := measure(ctx, *kubeconfig, *class, *count, *machines)
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

// The goals: how much longer a machine with a copy may take, and what a machine may take on disk beyond what its guest writes.
const (
	goalTime = 1500 * time.Millisecond
	goalDisk = 50 << 20
)

func measure(ctx context.Context, kubeconfig, class string, count, machines int) (string, error) {
	b, err := open(ctx, kubeconfig)
	if err != nil {
		return "", err
	}
	defer b.leave()
	if err := b.volume(ctx, "golden", class); err != nil {
		return "", err
	}
	var own, copied []time.Duration
	for i := range count { // in turn, so that both have the same machine to themselves
		name := fmt.Sprintf("own%d", i)
		if err := b.volume(ctx, name, class); err != nil {
			return "", err
		}
		for _, m := range []struct {
			disk string
			copy bool
			into *[]time.Duration
		}{{name, false, &own}, {"golden", true, &copied}} {
			took, err := b.one(ctx, fmt.Sprintf("%s-%d-%v", m.disk, i, m.copy), m.disk, m.copy)
			if err != nil {
				return "", err
			}
			*m.into = append(*m.into, took)
		}
	}
	room, err := b.room(ctx)
	if err != nil {
		return "", err
	}
	asked := machines
	machines = min(machines, room)
	many, err := b.many(ctx, machines)
	if err != nil {
		return "", err
	}
	text := report(own, copied, many, machines)
	if machines < asked {
		text += fmt.Sprintf("\n%d machines were asked for. A node of this cluster has memory for %d: each launcher asks for %d MiB.\n", asked, machines, machineMemory>>20)
	}
	return text, nil
}

func report(own, copied []time.Duration, m cost, machines int) string {
	var text strings.Builder
	more := median(copied) - median(own)
	fmt.Fprintf(&text, "# Machines over one golden claim\n\nMeasured %s on %d processors for all nodes; emulated, machines without guests. `make bench-copies`\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU())
	fmt.Fprintf(&text, "| from create until the machine runs, median of %d | seconds |\n|---|---|\n", len(own))
	fmt.Fprintf(&text, "| its disk is there already | %.2f |\n| a copy on write of the golden claim | %.2f |\n", median(own).Seconds(), median(copied).Seconds())
	fmt.Fprintf(&text, "| more | %.2f (goal: at most %.1f) |\n\n", more.Seconds(), goalTime.Seconds())
	fmt.Fprintf(&text, "| %d machines at once over one master, on one node | |\n|---|---|\n", machines)
	fmt.Fprintf(&text, "| until all run | %.1f s, %.2f s each |\n", m.took.Seconds(), m.took.Seconds()/float64(machines))
	fmt.Fprintf(&text, "| memory, each | %d MiB |\n", m.memory>>20/int64(machines))
	fmt.Fprintf(&text, "| disk of its copy, the largest | %.1f MiB (goal: less than %d) |\n", float64(m.disk)/(1<<20), goalDisk>>20)
	return text.String()
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
