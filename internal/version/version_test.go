package version

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestString(t *testing.T) {
	for want, i := range map[string]Info{
		`^dev \(go1\S*, \w+/\w+\)$`: {Version: "dev"},
		`^v0\.2\.0 \(commit 1234abcd, 2026-11-16T04:00:00Z, go1\S*, \w+/\w+\)$`: {Version: "v0.2.0", Commit: "1234abcd", Date: "2026-11-16T04:00:00Z"},
	} {
		if got := i.String(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%+v is %q, want %s", i, got, want)
		}
	}
}

func TestAsked(t *testing.T) {
	for args, want := range map[string]bool{"--version": true, "-version": true, "": false, "run": false, "run --version": false, "version": false} {
		if got := Asked(strings.Fields(args)); got != want {
			t.Errorf("%q asks for the version: %t, want %t", args, got, want)
		}
	}
}

// The linker says nothing when it is told to set a variable that is not there, so a program is linked with Flags and asked.
func TestFlagsReachTheProgram(t *testing.T) {
	is := Info{Version: "v1.2.3", Commit: "0123456789abcdef0123456789abcdef01234567", Date: "2026-11-16T04:00:00Z"}
	program := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w "+is.Flags(), "-o", program, "./testdata/program")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != is.String() {
		t.Errorf("the program says %q, want %q", got, is)
	}
}

// Every program answers --version: those of cmd call Answer before anything else, virtctl has it from cobra.
func TestEveryProgramAnswers(t *testing.T) {
	programs, err := filepath.Glob("../../cmd/*")
	if err != nil || len(programs) < 7 {
		t.Fatalf("found the programs %v: %v", programs, err)
	}
	deps := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.Dir}} {{join .Imports " "}}`, "../../cmd/...")
	out, err := deps.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "github.com/berth-vm/berth/internal/version") {
			t.Errorf("%s does not say its version", filepath.Base(strings.Fields(line)[0]))
		}
	}
}
