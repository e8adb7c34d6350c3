// Command test runs the project's tests stage by stage and ends with a summary: what passed, what failed, how long each
// stage took. It is what `make test` and CI run. It knows commands, not what they test.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

// stage is one command of the run. A stage of go tests is run with -json so that its tests can be counted.
type stage struct {
	name  string
	about string
	tests bool   // argv is a `go test` command line without -json
	dir   string // where argv runs, below the top of the checkout
	argv  []string
	env   []string
	// after a failure of an earlier stage this one is still run if it does not depend on it
	needs string
}

type result struct {
	stage
	took           time.Duration
	passed, failed int
	slow           []timed
	err            error
	notRun         bool
}

func main() {
	only := flag.String("only", "", "comma-separated stages to run; all of them if empty")
	list := flag.Bool("list", false, "list the stages and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen, err := choose(stages(), *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(2)
	}
	if *list {
		for _, s := range chosen {
			fmt.Fprintf(os.Stdout, "%-10s %s\n", s.name, s.about)
		}
		return
	}
	if !run(ctx, os.Stdout, chosen) {
		os.Exit(1)
	}
}

func choose(all []stage, only string) ([]stage, error) {
	if only == "" {
		return all, nil
	}
	var out []stage
	for _, want := range strings.Split(only, ",") {
		i := indexOf(all, want)
		if i < 0 {
			return nil, fmt.Errorf("no stage %q; `-list` shows them", want)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func indexOf(all []stage, name string) int {
	for i, s := range all {
		if s.name == name {
			return i
		}
	}
	return -1
}

// run executes the stages in order and reports whether all of them passed.
func run(ctx context.Context, out io.Writer, stages []stage) bool {
	var results []result
	broken := map[string]bool{}
	for i, s := range stages {
		if s.needs != "" && broken[s.needs] {
			broken[s.name] = true
			results = append(results, result{stage: s, notRun: true})
			continue
		}
		fmt.Fprintf(out, "\n=== [%d/%d] %s: %s\n", i+1, len(stages), s.name, s.about)
		r := execute(ctx, out, s)
		broken[s.name] = r.err != nil
		fmt.Fprintf(out, "=== %s: %s in %s\n", s.name, r.verdict(), r.took.Round(time.Second))
		results = append(results, r)
	}
	return summarise(out, results)
}

func execute(ctx context.Context, out io.Writer, s stage) result {
	r := result{stage: s}
	start := time.Now()
	argv := s.argv
	if s.tests {
		argv = append([]string{argv[0], argv[1], "-json"}, argv[2:]...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if s.tests {
		c := &counter{out: out}
		cmd.Stdout, cmd.Stderr = c, out
		r.err = cmd.Run()
		r.passed, r.failed, r.slow = c.passed, c.failed, c.took
		if r.err == nil && c.passed == 0 {
			r.err = fmt.Errorf("ran no test")
		}
	} else {
		cmd.Stdout, cmd.Stderr = out, out
		r.err = cmd.Run()
	}
	r.took = time.Since(start)
	return r
}

func (r result) verdict() string {
	switch {
	case r.notRun:
		return "not run, " + r.needs + " failed"
	case r.err != nil:
		return "FAILED (" + r.err.Error() + ")"
	}
	return "passed"
}

func summarise(out io.Writer, results []result) bool {
	ok := true
	var passed, failed int
	var took time.Duration
	var slow []timed
	fmt.Fprintf(out, "\n%-10s %8s %8s %8s  %s\n", "stage", "passed", "failed", "time", "")
	for _, r := range results {
		count := func(n int) string {
			if !r.tests {
				return "-"
			}
			return fmt.Sprint(n)
		}
		fmt.Fprintf(out, "%-10s %8s %8s %8s  %s\n", r.name, count(r.passed), count(r.failed), r.took.Round(time.Second), r.verdict())
		passed, failed, took = passed+r.passed, failed+r.failed, took+r.took
		slow = append(slow, r.slow...)
		if r.err != nil || r.notRun {
			ok = false
			if r.failed == 0 {
				failed++ // a stage that failed without a failing test counts as one
			}
		}
	}
	fmt.Fprintf(out, "%-10s %8d %8d %8s\n\nthe slowest tests:\n", "total", passed, failed, took.Round(time.Second))
	for _, t := range slowest(slow, 15) {
		fmt.Fprintf(out, "%8.1f s  %s\n", t.seconds, t.name)
	}
	fmt.Fprintf(out, "\n%d passed, %d failed\n", passed, failed)
	return ok
}
