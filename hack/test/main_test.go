package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLanes: what writes files runs before everything else, what runs beside others is shown whole, and a stage is left out
// where the one it needs has failed.
func TestLanes(t *testing.T) {
	dir := t.TempDir()
	sh := func(name string, l lane, needs, script string) stage {
		return stage{name: name, lane: l, needs: needs, dir: dir, argv: []string{"sh", "-c", script}}
	}
	tests := filepath.Join(dir, "tests.sh")
	events := `echo '{"Action":"pass","Package":"p","Test":"TestOne"}'; echo '{"Action":"pass","Package":"p"}'; echo four >&2`
	if err := os.WriteFile(tests, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ok := run(t.Context(), &out, []stage{
		sh("wait", beside, "", "echo one; mkfifo pipe 2>/dev/null; test -e made && cat pipe && echo two"),
		{name: "tests", lane: beside, tests: true, argv: []string{"sh", tests}},
		sh("make", first, "", "mkfifo pipe; echo yes > made"),
		sh("serve", inTurn, "", "test -e made && echo three > pipe"),
		sh("break", inTurn, "", "exit 3"),
		sh("follow", inTurn, "break", "echo never"),
	}, rules{})
	said := out.String()
	for _, want := range []string{"one\nthree\ntwo\n=== wait: passed", "=== serve: passed", "not run, break failed", "1 passed, 2 failed"} {
		if !strings.Contains(said, want) {
			t.Errorf("the run does not say %q", want)
		}
	}
	// a stage has two streams, whose order is not known
	if !strings.Contains(said, "ok   p 0.0s\nfour\n=== tests: passed") && !strings.Contains(said, "four\nok   p 0.0s\n=== tests: passed") {
		t.Errorf("what the stage with tests says is not in one piece:\n%s", said)
	}
	if ok || strings.Contains(said, "never") || strings.Index(said, "make: passed") > strings.Index(said, "wait:") {
		t.Errorf("the run is ok: %t, and says:\n%s", ok, said)
	}
}
