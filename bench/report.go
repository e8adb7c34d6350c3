package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The memory that a worker may take at most, in the works that are measured.
const rssGoal = 64 << 20

// summary summarizes the runs of one contender.
type summary struct {
	median, least, most float64
	rss                 int64
}

func summarise(samples []sample) summary {
	var t []float64
	var s summary
	for _, x := range samples {
		t = append(t, x.seconds)
		s.rss = max(s.rss, x.rss)
	}
	slices.Sort(t)
	s.least, s.most = t[0], t[len(t)-1]
	s.median = (t[len(t)/2] + t[(len(t)-1)/2]) / 2
	return s
}

// outcome is a goal and what became of it.
type outcome struct {
	work, text, value string
	met               bool
}

func (b *bench) of(w work, name string) summary { return summarise(b.samples[w.letter+"/"+name]) }

func (b *bench) outcomes(works []work) (all []outcome) {
	for _, w := range works {
		for _, g := range w.goals {
			v, unit := b.of(w, g.over).median, " s"
			if g.under != "" {
				v, unit = v/b.of(w, g.under).median, "x"
			}
			met := v <= g.limit
			if g.atLeast {
				met = v >= g.limit
			}
			format := "%.2f%s"
			if g.under == "" {
				format = "%.3f%s"
			}
			all = append(all, outcome{w.letter, g.text, fmt.Sprintf(format, v, unit), met})
		}
		rss := b.of(w, ours).rss
		all = append(all, outcome{w.letter, "peak RSS at most 64 MiB", mib(rss), rss <= rssGoal})
	}
	return all
}

// tables returns what everyone took, and what became of the goals.
func (b *bench) tables(works []work) string {
	var t strings.Builder
	t.WriteString("| work | who | median s | range | peak RSS |\n|---|---|---:|---|---:|\n")
	for _, w := range works {
		for _, name := range contenders(w) {
			s := b.of(w, name)
			fmt.Fprintf(&t, "| %s %s | %s | %s | %s - %s | %s |\n", w.letter, w.what, name,
				seconds(s.median), seconds(s.least), seconds(s.most), mib(s.rss))
		}
	}
	t.WriteString("\n| work | goal | measured | met |\n|---|---|---:|---|\n")
	for _, o := range b.outcomes(works) {
		met := "yes"
		if !o.met {
			met = "**no**"
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s |\n", o.work, o.text, o.value, met)
	}
	return t.String()
}

// report writes the tables to the log and to results.md, and the plot beside it.
func (b *bench) report(works []work) error {
	t := b.tables(works)
	fmt.Fprintf(b.log, "\n%s\n", t)
	md := fmt.Sprintf(resultsText, time.Now().UTC().Format(time.DateOnly), b.runs, b.data, b.disk, machine(),
		time.Since(b.began).Round(time.Second), t, notes(b.results))
	if err := os.WriteFile(filepath.Join(b.results, "results.md"), []byte(md), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.results, "results.svg"), b.plot(works), 0o644)
}

func seconds(s float64) string {
	if s < 0.1 {
		return fmt.Sprintf("%.3f", s)
	}
	return fmt.Sprintf("%.2f", s)
}

func contenders(w work) []string {
	names := []string{ours}
	for _, c := range w.others {
		names = append(names, c.name)
	}
	return names
}

const resultsText = `# Benchmark

Written by ` + "`make bench`" + ` on %s: %d interleaved runs, medians. The disk has %d MB of real files in %d MiB. Images come from nginx
(containers from a registry) over loopback and are warm in the page cache, the target is new every time, and fsync is
inside the timing. Server and client share the cores.

%s. The runs took %s.

![seconds, by work](results.svg)

%s
%s`

// notes returns what people wrote about the results, which a new run must not lose.
func notes(dir string) string {
	p, err := os.ReadFile(filepath.Join(dir, "notes.md"))
	if err != nil {
		return ""
	}
	return string(p)
}

// machine returns what this ran on.
func machine() string {
	cpu := "unknown CPU"
	if p, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(p)) {
			if rest, ok := strings.CutPrefix(line, "model name"); ok {
				cpu = strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
				break
			}
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d cores of %s, Linux %s, %s", runtime.NumCPU(), cpu, strings.TrimSpace(string(kernel)), runtime.Version())
}
