package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// events are lines of `go test -json`: an action, a package, a test, and what it prints.
func events(of ...string) string {
	var out strings.Builder
	for _, e := range of {
		part := append(strings.Fields(e), "", "")
		output, _ := json.Marshal(strings.TrimSpace(strings.Join(part[3:], " "))) // text can always be encoded
		fmt.Fprintf(&out, "{\"Action\":%q,\"Package\":%q,\"Test\":%q,\"Output\":%s}\n", part[0], part[1], part[2], output)
	}
	return out.String()
}

// TestWhatIsRunAgain: tests are, with those that ran beside them, and nothing if more than tests failed.
func TestWhatIsRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		turns bool
		said  string
		want  string
	}{
		"all passed": {false, events("run p A", "pass p A", "pass p"), "[]"},
		"a test and its subtest": {false, events("run p A", "run p A/one", "output p A/one oh", "fail p A/one", "fail p A", "run p B", "pass p B", "run p C", "skip p C", "fail p"),
			"[p.A said oh, beside []]"},
		"tests of two packages": {false, events("run p A", "run q B", "fail p A", "fail p", "fail q B", "fail q"), "[p.A said , beside [q.B] q.B said , beside []]"},
		"one that waits is not beside": {false, events("run p A", "pause p A", "run p B", "pause p B", "run p C", "pause p C", "cont p A", "cont p B", "fail p A", "fail p", "skip p B", "skip p C"),
			"[p.A said , beside [p.B]]"},
		"one that waits for its turn is not beside": {true, events("run p A", "run p B", "run p C", "output p A had a turn after 0.0s", "output p B/x had a turn after 1.5s", "fail p A", "pass p B", "pass p C", "fail p"),
			"[p.A said had a turn after 0.0s, beside [p.B]]"},
		"not too many beside":           {false, events("run p A", "run p B", "run p C", "run p D", "run p E", "fail p A", "pass p B", "pass p C", "pass p D", "pass p E", "fail p"), "[p.A said , beside [p.B p.C p.D]]"},
		"a package that did not build":  {false, events("fail p", "run q B", "fail q B", "fail q"), "[]"},
		"a test that ended its process": {false, events("run p A", "run p B", "fail p B", "fail p"), "[]"},
	} {
		counted := newCounter(&bytes.Buffer{}, c.turns)
		if _, err := counted.Write([]byte(c.said)); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, f := range counted.repeatable() {
			got = append(got, fmt.Sprintf("%s said %s, beside %v", f.test, f.said, f.beside))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestWaitingIsNotCounted: the time that a test waited for its turn is not its own.
func TestWaitingIsNotCounted(t *testing.T) {
	c := newCounter(&bytes.Buffer{}, true)
	_, _ = c.Write([]byte(events("run p A", "output p A had a turn after 7.5s") + `{"Action":"pass","Package":"p","Test":"A","Elapsed":10}` + "\n")) // never fails
	if want := []timed{{"p.A", 2.5}}; !reflect.DeepEqual(c.took, want) {
		t.Errorf("%v, want %v", c.took, want)
	}
}

// TestMayBeRunAgain: not tests of safety, not too many in a run, and not one that did so on another day.
func TestMayBeRunAgain(t *testing.T) {
	listed, err := readFlaky("# what\n\n2026-01-02 p.Old   the guest waits # for ever\n2026-01-03 p.Today nothing yet\n")
	if err != nil {
		t.Fatal(err)
	}
	r := rules{today: "2026-01-03", safe: isSafety("one writer: `TestOne` and `TestTwo/part`"), listed: listed}
	in := func(names ...string) (out []test) {
		for _, n := range names {
			pkg, name, _ := strings.Cut(n, ".")
			out = append(out, test{"github.com/berth-vm/berth/" + pkg, name})
		}
		return out
	}
	for _, c := range []struct {
		failed  []test
		already int
		want    string
	}{
		{in("p.A"), 0, ""},
		{in("p.A", "p.B"), 0, ""},
		{in("p.A"), 1, ""},
		{in("p.A", "p.B"), 1, "3 tests of this run failed"},
		{in("p.A"), 2, "3 tests of this run failed"},
		{in("p.Today"), 0, ""},
		{in("p.Old"), 0, "p.Old passed only the second time already on 2026-01-02 (hack/test/flaky.txt): the guest waits"},
		{in("p.TestOne"), 0, "a test of safety"},
		{in("p.A", "p.TestTwo"), 0, "a test of safety"},
		{in("test/e2e/hostile.TestAny"), 0, "a test of safety"},
		{in("test/e2e/move.TestMigrationHarm"), 0, "a test of safety"},
		{in("test/e2e/move.TestMigration"), 0, ""},
	} {
		if got := r.refuse(c.failed, c.already); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v, after %d: %q, want %q", c.failed, c.already, got, c.want)
		}
	}
	for _, wrong := range []string{"2026-13-01 p.A why", "2026-01-02 p.A", "p.A 2026-01-02 why", "2026-01-02 p.A why\n2026-01-03 p.A why"} {
		if _, err := readFlaky(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// TestSafetyIsThere: what is listed as safety exists, and so does the page that names others.
func TestSafetyIsThere(t *testing.T) {
	t.Chdir("../..")
	for _, s := range safety {
		dir, name, is := strings.Cut(s, ".")
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		var text strings.Builder
		for _, file := range files {
			part, readErr := os.ReadFile(file)
			text.Write(part)
			err = readErr
		}
		if err != nil || len(files) == 0 || is && !strings.Contains(text.String(), "func "+name+"(") {
			t.Errorf("there is no %s: %v", s, err)
		}
	}
	r, err := readRules(time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC))
	if err != nil || !r.safe(test{"p", "TestCloneOfADiskThatIsWanted"}) || r.safe(test{"p", "TestDebian"}) {
		t.Errorf("rules are wrong: %v", err)
	}
}

// TestAgain: a test that fails once passes, is named and its first failure is printed; one that fails twice fails; a stage that is
// not busy is not run again, and neither is a test of safety.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		busy, heals, safe, ok bool
		want                  string
	}{
		"heals":    {true, true, false, true, "passed only the second time, a fault to be found: p.TestA (tests)\nadd it to hack/test/flaky.txt with what you find out:\n2026-01-03 p.TestA ...\nits first failure said:\nboom"},
		"stays":    {true, false, false, false, "0 passed, 1 failed"},
		"not busy": {false, true, false, false, "0 passed, 1 failed"},
		"safety":   {true, true, true, false, "nothing is run again: p.TestA is a test of safety"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := fmt.Sprintf("[ -e %[1]s/ran ] && [ \"$*\" = '-json x -run ^(TestA|TestB)$ p q' ] && %[2]t && { printf '%[3]s'; exit; }\ntouch %[1]s/ran; printf '%[4]s'; exit 1\n",
				dir, c.heals, events("run p TestA", "pass p TestA", "pass p"), events("run q TestB", "run p TestA", "output p TestA boom", "fail p TestA", "fail p", "skip q TestB"))
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			// the second word of a command is `test` for go, and here the script
			stages := []stage{{name: "tests", tests: true, busy: c.busy, argv: []string{"sh", filepath.Join(dir, "go"), "x"}, only: "."}}
			ok := run(t.Context(), &out, stages, rules{today: "2026-01-03", safe: func(test) bool { return c.safe }})
			if ok != c.ok || !strings.Contains(out.String(), c.want) {
				t.Errorf("ok: %t, and it says:\n%s", ok, &out)
			}
		})
	}
}
