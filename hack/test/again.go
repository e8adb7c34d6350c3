package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Two processors run a cluster of three nodes, its guests, the linter and the race detector at once. A test that waits for a fact
// may wait too long there once in a hundred runs, and one such test in thousands would make every other run say nothing about a
// change. So what failed in a busy stage is run once more, by itself, and the run passes if it passes then. It is not forgotten:
// the first failure stays in the output, and the summary ends with the names. A name that stands there is a fault to be found, in
// the test or in the program. Nothing else is run again: not the race detector, not unit tests, and not a process that died.

// atMost is how many tests of a stage may fail and be run again. More of them say that something is broken.
const atMost = 4

// begun notes that a test runs.
func (c *counter) begun(key string) {
	if c.open == nil {
		c.open = map[string]bool{}
	}
	c.open[key] = true
}

// lose notes what failed: a test, or a package.
func (c *counter) lose(e event) {
	if c.lost == nil {
		c.lost = map[string][]string{}
	}
	tests := c.lost[e.Package]
	if e.Test != "" && !strings.Contains(e.Test, "/") {
		tests = append(tests, e.Test)
	}
	c.lost[e.Package] = tests
}

// again are the tests to be run again, by package. There are none if more than tests failed: a package that did not build, or a
// test that ended the process and took others with it.
func (c *counter) again() map[string][]string {
	n := 0
	for _, tests := range c.lost {
		if len(tests) == 0 {
			return nil
		}
		n += len(tests)
	}
	if n > atMost || len(c.open) > 0 {
		return nil
	}
	return c.lost
}

// again runs what failed in a stage once more, one test at a time.
func again(ctx context.Context, out io.Writer, first result) result {
	if len(first.lost) == 0 {
		return first
	}
	sum := first
	sum.err, sum.failed = nil, 0
	for _, name := range slices.Sorted(maps.Keys(first.lost)) {
		tests := first.lost[name]
		fmt.Fprintf(out, "\n=== %s: once more, by themselves: %s\n", first.name, strings.Join(tests, ", "))
		s := first.stage
		s.argv = append(slices.Clone(s.argv), "-parallel", "1")
		s.only, s.packages = "^("+strings.Join(tests, "|")+")$", []string{name}
		second := execute(ctx, out, s)
		sum.took += second.took
		sum.worked += second.worked
		sum.passed += second.passed
		sum.failed += second.failed
		if second.err != nil {
			sum.err = second.err
			continue
		}
		sum.second = append(sum.second, tests...)
	}
	return sum
}

// sayAgain names the tests that passed only the second time.
func sayAgain(out io.Writer, results []result) {
	for _, r := range results {
		for _, test := range r.second {
			fmt.Fprintf(out, "\npassed only the second time, a fault to be found: %s (%s); why it failed stands above\n", test, r.name)
		}
	}
}
