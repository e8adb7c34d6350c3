// Command test runs the project's tests stage by stage and ends with a summary: what passed, what failed, how long each stage
// took. `make test` and CI run it. It knows commands, not what they test.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stage is one command of the run. A stage of go tests is run with -json so that its tests can be counted.
type stage struct {
	name     string
	about    string
	tests    bool     // argv is a `go test` command line without -json, -run and packages
	only     string   // a pattern of the tests to run, all of them if empty
	packages []string // of the tests
	dir      string   // where argv runs, below the top of the checkout
	argv     []string
	env      []string
	lane     lane
	// turns is how many tests of all packages run at the same time; 0: as many as argv says
	turns int
	// busy stages run many processes on a machine that does other things as well: what failed in one is run again, see again.go
	busy bool
	// after a failure of an earlier stage this one is still run if it does not depend on it
	needs string
}

// lane says beside what a stage runs.
type lane int

const (
	// inTurn stages run one after the other.
	inTurn lane = iota
	// beside them run, one after the other too, those that need nothing but a processor: they get what the others leave.
	beside
	// first and alone run those that write files which the others read.
	first
)

type result struct {
	stage
	took           time.Duration
	worked         time.Duration // by processors; what a cluster's own programs do is not in it
	passed, failed int
	slow           []timed
	lost           []failure // tests that may be run again
	second         []failure // tests that passed only when they were run again
	err            error
	notRun         bool
}

func main() {
	only := flag.String("only", "", "comma-separated stages to run; all of them if empty")
	area := flag.String("area", "", "comma-separated directories of test/e2e that the stage e2e runs; all of them if empty")
	list := flag.Bool("list", false, "list the stages and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen, err := choose(stages(), *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(2)
	}
	if chosen, err = narrow(chosen, *area); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(2)
	}
	rules, err := readRules(time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(2)
	}
	if *list {
		for _, s := range chosen {
			fmt.Fprintf(os.Stdout, "%-12s %s\n", s.name, s.about)
		}
		return
	}
	if !run(ctx, os.Stdout, chosen, rules) {
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

// run executes the stages and reports whether all of them passed.
func run(ctx context.Context, out io.Writer, stages []stage, rules rules) bool {
	start := time.Now()
	out = &whole{out: out}
	r := &runner{out: out, results: make([]result, len(stages)), all: stages, rules: rules}
	r.lane(ctx, first)
	var lanes sync.WaitGroup
	lanes.Go(func() { r.lane(ctx, beside) })
	r.lane(ctx, inTurn)
	lanes.Wait()
	return summarise(out, r.results, rules, time.Since(start))
}

// whole lets what one lane writes at once not be parted by what another one writes.
type whole struct {
	sync.Mutex
	out io.Writer
}

func (w *whole) Write(p []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.out.Write(p)
}

// runner has the stages and, at the same place, their results.
type runner struct {
	out     io.Writer
	all     []stage
	results []result

	rules    rules
	forgiven int // tests that were run again, by the one lane that has busy stages
}

// lane runs the stages of one lane in their order. What a stage beside others prints is shown when it has ended.
func (r *runner) lane(ctx context.Context, l lane) {
	broken := map[string]bool{}
	for i, s := range r.all {
		switch {
		case s.lane != l:
			continue
		case s.needs != "" && broken[s.needs]:
			broken[s.name] = true
			r.results[i] = result{stage: s, notRun: true}
			continue
		}
		fmt.Fprintf(r.out, "\n=== [%d/%d] %s: %s\n", i+1, len(r.all), s.name, s.about)
		var said bytes.Buffer
		to := r.out
		if l == beside {
			to = &whole{out: &said} // a stage has two streams
		}
		done := execute(ctx, to, s)
		if s.busy && done.err != nil {
			done = r.again(ctx, to, done)
		}
		broken[s.name] = done.err != nil
		fmt.Fprintf(r.out, "%s=== %s: %s in %s\n", said.Bytes(), s.name, done.verdict(), done.took.Round(time.Second))
		r.results[i] = done
	}
}

func execute(ctx context.Context, out io.Writer, s stage) result {
	r := result{stage: s}
	start := time.Now()
	argv := s.argv
	if s.tests {
		argv = slices.Concat([]string{argv[0], argv[1], "-json"}, argv[2:])
		if s.only != "" {
			argv = append(argv, "-run", s.only)
		}
		argv = append(argv, s.packages...)
	}
	if s.lane == beside {
		argv = append([]string{"nice", "-n", "19"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	if s.turns > 0 {
		dir, err := makeTurns(s.turns)
		if err != nil {
			r.err = err
			return r
		}
		defer func() { _ = os.RemoveAll(dir) }() // empty files in the directory for temporary ones
		cmd.Env = append(cmd.Env, "E2E_TURNS="+dir)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if s.tests {
		c := newCounter(out, s.turns > 0)
		cmd.Stdout, cmd.Stderr = c, out
		r.err = cmd.Run()
		r.passed, r.failed, r.slow, r.lost = c.passed, c.failed, c.took, c.repeatable()
		if r.err == nil && c.passed == 0 {
			r.err = fmt.Errorf("ran no test")
		}
	} else {
		cmd.Stdout, cmd.Stderr = out, out
		r.err = cmd.Run()
	}
	r.took = time.Since(start)
	if cmd.ProcessState != nil {
		r.worked = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return r
}

// makeTurns makes a directory with a file for each test that may run at the same time; test/e2e/framework locks them.
func makeTurns(n int) (string, error) {
	dir, err := os.MkdirTemp("", "turns-")
	for i := 0; i < n && err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600)
	}
	return dir, err
}

func (r result) verdict() string {
	switch {
	case r.notRun:
		return "not run, " + r.needs + " failed"
	case r.err != nil:
		return "FAILED (" + r.err.Error() + ")"
	case len(r.second) > 0:
		return fmt.Sprintf("passed, %d of them only the second time", len(r.second))
	}
	return "passed"
}

func summarise(out io.Writer, results []result, rules rules, took time.Duration) bool {
	ok := true
	var passed, failed int
	var slow []timed
	fmt.Fprintf(out, "\n%-12s %8s %8s %8s %10s  %s\n", "stage", "passed", "failed", "time", "processors", "")
	for _, r := range results {
		count := func(n int) string {
			if !r.tests {
				return "-"
			}
			return fmt.Sprint(n)
		}
		fmt.Fprintf(out, "%-12s %8s %8s %8s %10s  %s\n", r.name, count(r.passed), count(r.failed),
			r.took.Round(time.Second), r.worked.Round(time.Second), r.verdict())
		passed, failed = passed+r.passed, failed+r.failed
		slow = append(slow, r.slow...)
		if r.err != nil || r.notRun {
			ok = false
			if r.failed == 0 {
				failed++ // a stage that failed without a failing test counts as one
			}
		}
	}
	fmt.Fprintf(out, "%-12s %8d %8d %8s\n\nthe slowest tests:\n", "total", passed, failed, took.Round(time.Second))
	for _, t := range slowest(slow, 30) {
		fmt.Fprintf(out, "%8.1f s  %s\n", t.seconds, t.name)
	}
	rules.sayAgain(out, results)
	fmt.Fprintf(out, "\n%d passed, %d failed\n", passed, failed)
	return ok
}
