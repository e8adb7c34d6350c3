package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestNoPackageIsForgotten: the two parts together are all packages that have unit tests.
func TestNoPackageIsForgotten(t *testing.T) {
	t.Chdir("../..")
	raced, plain := unitTests()
	got := slices.Sorted(slices.Values(append(raced, plain...)))
	out, err := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(strings.ReplaceAll(string(out), "github.com/berth-vm/berth", "."))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the stages test\n%s\nand there are\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Contains(raced, "./internal/transfer") || !slices.Contains(plain, "./internal/decide/volume") {
		t.Errorf("with the race detector: %s", raced)
	}
}
