package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// counter reads the events of `go test -json`, counts tests and prints what a person wants to read: one line per
// package, and the whole output of what failed.
type counter struct {
	out            io.Writer
	line           []byte
	logs           map[string]*bytes.Buffer
	passed, failed int
	took           []timed
	open           map[string]bool     // tests that have begun and not ended
	lost           map[string][]string // by package: its tests that failed, none if the package failed without one
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
	switch e.Action {
	case "run":
		c.begun(key)
	case "output", "build-output":
		if c.logs == nil {
			c.logs = map[string]*bytes.Buffer{}
		}
		if e.Action == "build-output" {
			fmt.Fprint(c.out, e.Output)
			return
		}
		if c.logs[key] == nil {
			c.logs[key] = &bytes.Buffer{}
		}
		c.logs[key].WriteString(e.Output)
	case "skip":
		delete(c.open, key)
	case "pass":
		c.ended(e, key, "ok  ", &c.passed, false)
	case "fail":
		c.ended(e, key, "FAIL", &c.failed, true)
	}
}

func (c *counter) ended(e event, key, word string, count *int, show bool) {
	delete(c.open, key)
	if show {
		c.lose(e)
	}
	if e.Test != "" {
		*count++
		if !strings.Contains(e.Test, "/") {
			c.took = append(c.took, timed{path.Base(e.Package) + "." + e.Test, e.Elapsed})
		}
	}
	if show && c.logs[key] != nil {
		_, _ = c.logs[key].WriteTo(c.out)
	}
	delete(c.logs, key)
	if e.Test == "" {
		fmt.Fprintf(c.out, "%s %s %.1fs\n", word, e.Package, e.Elapsed)
	}
}

// slowest are the tests that took longest, longest first.
func slowest(all []timed, n int) []timed {
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	return all[:min(n, len(all))]
}
