package build

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReportTellsErrorsFromPackages(t *testing.T) {
	var progress bytes.Buffer
	output := "go: downloading example.com/m v1.0.0\nk8s.io/a\nk8s.io/b\n# k8s.io/b\n./b.go:1:1: syntax error\n"
	said := report(strings.NewReader(output), "kubebox", 10, time.Now().Add(-time.Minute), &progress)
	if want := "# k8s.io/b\n./b.go:1:1: syntax error\n"; said != want {
		t.Errorf("errors are %q, want %q", said, want)
	}
	if got := progress.String(); !strings.Contains(got, "1 of at most 10 packages compiled, 1m0s") {
		t.Errorf("progress is %q", got)
	}
}

func TestVersionComesFromGoMod(t *testing.T) {
	got := versionFlags(filepath.Join("..", ".."))
	if !strings.Contains(got, "gitMajor=1 ") || !strings.Contains(got, "gitVersion=v1.") {
		t.Errorf("got %q", got)
	}
	if got := versionFlags(t.TempDir()); got != "" {
		t.Errorf("without go.mod: got %q", got)
	}
}

func TestBuildShowsWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module m\n\ngo 1.26.0\n", "main.go": "package main\n\nfunc main() { nonsense }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := Build(t.Context(), dir, Program{Name: "m", Module: ".", Package: "."}, filepath.Join(dir, "m"), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("got %v, want the compiler's message", err)
	}
}
