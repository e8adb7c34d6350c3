package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// counter reads the events of `go test -json`, counts tests and prints what a person wants to read: one line per
// package, and the whole output of what failed.
type counter struct {
	out            io.Writer
	line           []byte
	logs           map[string]*bytes.Buffer
	passed, failed int
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
	case "pass":
		c.ended(e, key, "ok  ", &c.passed, false)
	case "fail":
		c.ended(e, key, "FAIL", &c.failed, true)
	}
}

func (c *counter) ended(e event, key, word string, count *int, show bool) {
	if e.Test != "" {
		*count++
	}
	if show && c.logs[key] != nil {
		_, _ = c.logs[key].WriteTo(c.out)
	}
	delete(c.logs, key)
	if e.Test == "" {
		fmt.Fprintf(c.out, "%s %s %.1fs\n", word, e.Package, e.Elapsed)
	}
}
