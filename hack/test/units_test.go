package main

import (
	"os/exec"
	"regexp"
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

// TestHostTests: the stage of what needs root runs its tests and no others.
func TestHostTests(t *testing.T) {
	t.Chdir("../..")
	names := regexp.MustCompile(hostNames("."))
	if names.MatchString("TestCrashInUse") || !names.MatchString("TestKilledWithAGuest") || names.MatchString("TestUsedWhileFilled") || names.MatchString("TestLanes") {
		t.Errorf("it runs %s", names)
	}
	if names := regexp.MustCompile(hostNames(driver)); !names.MatchString("TestCrashInUse") || names.MatchString("TestKilledWithAGuest") {
		t.Errorf("the driver's runs %s", names)
	}
	if packages := hostPackages(driver); !slices.Equal(packages, []string{"./internal/localdisk"}) {
		t.Errorf("the driver's runs in %s", packages)
	}
}
