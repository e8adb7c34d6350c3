package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// counter reads the events of `go test -json`, counts tests and prints what a person wants to read: one line per
// package, and the whole output of what failed.
type counter struct {
	out            io.Writer
	turns          bool // tests wait for turns, see test/e2e/framework
	line           []byte
	logs           map[string]*bytes.Buffer
	passed, failed int
	took           []timed
	open           map[string]bool  // tests that have begun and not ended
	running        map[test]bool    // of those, top-level tests that do not wait for others
	waited         map[test]float64 // seconds that a test waited for its turn
	kept           map[test]string  // what its failed subtests said
	lost           []failure        // top-level tests that failed
	broken         bool             // a package failed without a failing test
}

// timed is a test and how many seconds it took. Subtests are part of theirs.
type timed struct {
	name    string
	seconds float64
}

type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

func newCounter(out io.Writer, turns bool) *counter {
	return &counter{out: out, turns: turns, logs: map[string]*bytes.Buffer{}, open: map[string]bool{}, running: map[test]bool{},
		waited: map[test]float64{}, kept: map[test]string{}}
}

func (c *counter) Write(p []byte) (int, error) {
	c.line = append(c.line, p...)
	for {
		i := bytes.IndexByte(c.line, '\n')
		if i < 0 {
			return len(p), nil
		}
		c.event(c.line[:i])
		c.line = c.line[i+1:]
	}
}

func (c *counter) event(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		fmt.Fprintf(c.out, "%s\n", line) // a build error or the go command itself
		return
	}
	key := e.Package + " " + e.Test
	top := e.top()
	switch e.Action {
	case "run":
		c.open[key] = true
		if top.name == e.Test && !c.turns {
			c.running[top] = true
		}
	case "pause":
		if top.name == e.Test {
			delete(c.running, top)
		}
	case "cont":
		if top.name == e.Test && !c.turns {
			c.running[top] = true
		}
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "output":
		c.output(e, key)
	case "skip":
		delete(c.open, key)
		delete(c.running, top)
	case "pass":
		c.ended(e, key, "ok  ", &c.passed, false)
	case "fail":
		c.ended(e, key, "FAIL", &c.failed, true)
	}
}

// hadTurn matches the line that a test logs when its turn has come.
var hadTurn = regexp.MustCompile(`had a turn after ([0-9.]+)s`)

func (c *counter) output(e event, key string) {
	if c.logs[key] == nil {
		c.logs[key] = &bytes.Buffer{}
	}
	c.logs[key].WriteString(e.Output)
	if m := hadTurn.FindStringSubmatch(e.Output); m != nil && c.turns {
		seconds, _ := strconv.ParseFloat(m[1], 64) // the pattern has only numbers
		c.waited[e.top()] += seconds
		c.running[e.top()] = true
	}
}

// top is the top-level test that an event is about.
func (e event) top() test {
	name, _, _ := strings.Cut(e.Test, "/")
	return test{e.Package, name}
}

func (c *counter) ended(e event, key, word string, count *int, failed bool) {
	top, said := e.top(), ""
	delete(c.open, key)
	if c.logs[key] != nil {
		said = c.logs[key].String()
		delete(c.logs, key)
	}
	if failed {
		c.lose(e, said)
		fmt.Fprint(c.out, said)
	}
	if e.Test == "" {
		fmt.Fprintf(c.out, "%s %s %.1fs\n", word, e.Package, e.Elapsed)
		return
	}
	*count++
	if top.name == e.Test {
		delete(c.running, top)
		// subtests that run in parallel wait at the same time, so it may be more than the test took
		c.took = append(c.took, timed{path.Base(e.Package) + "." + e.Test, max(0, e.Elapsed-c.waited[top])})
	}
}

// lose notes what failed: a subtest, a test, or a package.
func (c *counter) lose(e event, said string) {
	top := e.top()
	switch {
	case e.Test == "":
		c.broken = c.broken || !slices.ContainsFunc(c.lost, func(f failure) bool { return f.pkg == e.Package })
	case top.name != e.Test:
		c.kept[top] += said
	default:
		c.lost = append(c.lost, failure{test: top, said: c.kept[top] + said, beside: c.beside(top)})
	}
}

// beside are tests that run now beside one of them.
func (c *counter) beside(of test) []test {
	var out []test
	for t := range c.running {
		if t != of {
			out = append(out, t)
		}
	}
	sortTests(out)
	return out[:min(companyOf, len(out))]
}

// repeatable are the tests to be run again. There are none if more than tests failed: a package that did not build, or a test that
// ended the process and took others with it.
func (c *counter) repeatable() []failure {
	if c.broken || len(c.open) > 0 {
		return nil
	}
	return c.lost
}

// slowest returns the tests that took longest, longest first.
func slowest(all []timed, n int) []timed {
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	return all[:min(n, len(all))]
}
