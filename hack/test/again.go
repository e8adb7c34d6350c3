package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Two processors run a cluster of three nodes, its guests, the linter and the race detector at once. A test that waits for a fact
// may wait too long there once in a hundred runs, and one such test in thousands would make every other run say nothing about a
// change. So a test that fails in a busy stage is run once more, with the tests that ran beside it, and the run passes if all of
// them pass then. This is bounded:
//   - Tests of safety (see safety) are never run again: what they look for happens once in a hundred runs.
//   - Not more than forgivenARun tests of a run are run again, and none if a package did not build or a process died.
//   - A test that passes only the second time is printed at the end with the output of its first failure. It belongs in flaky.txt,
//     with the date and what was found out. If it does so again on another day, the run fails.

// forgivenARun is how many tests of a run may fail and be run again. More of them say that something is broken.
const forgivenARun = 2

// companyOf is how many tests that ran beside a failed one run beside it again.
const companyOf = 3

// safety are the packages and tests whose single failure fails the run, besides those that oneWriterPage names.
var safety = []string{
	"test/e2e/chaos", "test/e2e/hostile", "test/e2e/node",
	"test/e2e/move.TestMigrationFaults", "test/e2e/move.TestMigrationHarm",
}

// oneWriterPage names the tests of the promise that a disk has one writer.
const oneWriterPage = "docs/flows/one-writer.md"

// flakyFile has a line for each test that has passed only the second time: its date, the test, and what was found out.
const flakyFile = "hack/test/flaky.txt"

// rules say what may be run again.
type rules struct {
	today  string
	safe   func(test) bool
	listed map[string]note // by the name of the test
}

// note is an entry of flakyFile about a test.
type note struct{ date, finding string }

// test is a test function of a package.
type test struct{ pkg, name string }

// String is the test's name in flakyFile: move.TestX of test/e2e is test/e2e/move.TestX.
func (t test) String() string {
	return strings.TrimPrefix(t.pkg, "github.com/berth-vm/berth/") + "." + t.name
}

func readRules(today time.Time) (rules, error) {
	page, err := os.ReadFile(oneWriterPage)
	if err != nil {
		return rules{}, err
	}
	text, err := os.ReadFile(flakyFile)
	if err != nil {
		return rules{}, err
	}
	listed, err := readFlaky(string(text))
	return rules{today: today.UTC().Format(time.DateOnly), safe: isSafety(string(page)), listed: listed}, err
}

// isSafety returns a function that reports whether a test is one of safety.
func isSafety(page string) func(test) bool {
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]+)").FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
	}
	return func(t test) bool {
		pkg, _, _ := strings.Cut(t.String(), ".")
		return named[t.name] || slices.Contains(safety, t.String()) || slices.Contains(safety, pkg)
	}
}

// readFlaky reads the lines of flakyFile; what follows # is a comment.
func readFlaky(text string) (map[string]note, error) {
	listed := map[string]note{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if _, err := time.Parse(time.DateOnly, words[0]); err != nil || len(words) < 3 {
			return nil, fmt.Errorf("%s: %q is not a date, a test and what was found out", flakyFile, strings.TrimSpace(line))
		}
		if _, is := listed[words[1]]; is {
			return nil, fmt.Errorf("%s names %s twice", flakyFile, words[1])
		}
		listed[words[1]] = note{words[0], strings.Join(words[2:], " ")}
	}
	return listed, nil
}

// refuse returns why the tests that failed may not be run again; "" if they may. Already so many tests of the run were.
func (r rules) refuse(failed []test, already int) string {
	for _, t := range failed {
		if r.safe != nil && r.safe(t) {
			return fmt.Sprintf("%s is a test of safety, which may not fail once", t)
		}
		if n, is := r.listed[t.String()]; is && n.date != r.today {
			return fmt.Sprintf("%s passed only the second time already on %s (%s): %s", t, n.date, flakyFile, n.finding)
		}
	}
	if already+len(failed) > forgivenARun {
		return fmt.Sprintf("%d tests of this run failed, and %d may be run again", already+len(failed), forgivenARun)
	}
	return ""
}

// failure describes a test that failed.
type failure struct {
	test
	said   string // with its subtests
	beside []test // what ran when it failed
}

// again runs what failed in a stage once more, with what ran beside it.
func (r *runner) again(ctx context.Context, out io.Writer, first result) result {
	if len(first.lost) == 0 {
		return first
	}
	var failed, all []test
	for _, f := range first.lost {
		failed = append(failed, f.test)
		all = append(all, f.test)
		all = append(all, f.beside...)
	}
	if why := r.rules.refuse(failed, r.forgiven); why != "" {
		fmt.Fprintf(out, "\n=== %s: nothing is run again: %s\n", first.name, why)
		return first
	}
	r.forgiven += len(failed)
	names, packages := map[string]bool{}, map[string]bool{}
	for _, t := range all {
		names[t.name], packages[t.pkg] = true, true
	}
	s := first.stage
	s.only = "^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
	s.packages = slices.Sorted(maps.Keys(packages))
	fmt.Fprintf(out, "\n=== %s: once more, with what ran beside: %s\n", first.name, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	second := execute(ctx, out, s)
	sum := first
	sum.took += second.took
	sum.worked += second.worked
	sum.passed += second.passed
	sum.failed, sum.err = second.failed, second.err
	if second.err == nil {
		sum.second = first.lost
	}
	return sum
}

// sayAgain prints the tests that passed only the second time, and why they failed the first time.
func (r rules) sayAgain(out io.Writer, results []result) {
	for _, res := range results {
		for _, f := range res.second {
			fmt.Fprintf(out, "\npassed only the second time, a fault to be found: %s (%s)\n", f.test, res.name)
			if _, is := r.listed[f.String()]; !is {
				fmt.Fprintf(out, "add it to %s with what you find out:\n%s %s ...\n", flakyFile, r.today, f.test)
			}
			fmt.Fprintf(out, "its first failure said:\n%s\n", f.said)
		}
	}
}

func sortTests(tests []test) {
	slices.SortFunc(tests, func(a, b test) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
}
