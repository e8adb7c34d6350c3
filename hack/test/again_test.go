package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// events are lines of `go test -json`: an action, a package and a test.
func events(of ...string) string {
	var out strings.Builder
	for _, e := range of {
		part := append(strings.Fields(e), "", "")
		fmt.Fprintf(&out, "{\"Action\":%q,\"Package\":%q,\"Test\":%q}\n", part[0], part[1], part[2])
	}
	return out.String()
}

// TestWhatIsRunAgain: tests are, and nothing where more than tests failed.
func TestWhatIsRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		said string
		want map[string][]string
	}{
		"all passed": {events("run p A", "pass p A", "pass p"), nil},
		"a test and its subtest": {events("run p A", "run p A/one", "fail p A/one", "fail p A", "run p B", "pass p B", "run p C", "skip p C", "fail p"),
			map[string][]string{"p": {"A"}}},
		"tests of two packages":         {events("run p A", "fail p A", "fail p", "run q B", "fail q B", "fail q"), map[string][]string{"p": {"A"}, "q": {"B"}}},
		"a package that did not build":  {events("fail p", "run q B", "fail q B", "fail q"), nil},
		"a test that ended its process": {events("run p A", "run p B", "fail p B", "fail p"), nil},
		"too many":                      {events("run p A", "fail p A", "run p B", "fail p B", "run p C", "fail p C", "run p D", "fail p D", "run p E", "fail p E", "fail p"), nil},
	} {
		c2 := &counter{out: &bytes.Buffer{}}
		if _, err := c2.Write([]byte(c.said)); err != nil {
			t.Fatal(err)
		}
		if got := c2.again(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestAgain: a test that fails once passes and is named; one that fails twice fails; and a stage that is not busy is not run again.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		busy, heals, ok bool
		want            string
	}{
		"heals":    {true, true, true, "passed only the second time, a fault to be found: TestA (tests)"},
		"stays":    {true, false, false, "0 passed, 1 failed"},
		"not busy": {false, true, false, "0 passed, 1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := fmt.Sprintf("[ -e %[1]s/ran ] && [ \"$*\" = '-json x -parallel 1 -run ^(TestA)$ p' ] && %[2]t && { printf '%[3]s'; exit; }\ntouch %[1]s/ran; printf '%[4]s'; exit 1\n",
				dir, c.heals, events("run p TestA", "pass p TestA", "pass p"), events("run p TestA", "fail p TestA", "fail p"))
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			// the second word of a command is `test` for go, and here the script
			ok := run(t.Context(), &out, []stage{{name: "tests", tests: true, busy: c.busy, argv: []string{"sh", filepath.Join(dir, "go"), "x"}, only: "."}})
			if ok != c.ok || !strings.Contains(out.String(), c.want) {
				t.Errorf("ok: %t, and it says:\n%s", ok, &out)
			}
		})
	}
}
