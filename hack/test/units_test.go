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

// TestNoModuleIsForgotten: each module that has tests has a stage.
func TestNoModuleIsForgotten(t *testing.T) {
	t.Chdir("../..")
	files, err := exec.Command("git", "ls-files", "--", "*/go.mod", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(files))
	for _, file := range all {
		dir, is := strings.CutSuffix(file, "/go.mod")
		if !is || !slices.ContainsFunc(all, func(f string) bool { return strings.HasPrefix(f, dir+"/") && strings.HasSuffix(f, "_test.go") }) {
			continue
		}
		if !slices.ContainsFunc(stages(), func(s stage) bool { return s.dir == dir }) {
			t.Errorf("no stage runs the tests of %s", dir)
		}
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

// TestAloneTests: tests that do not call t.Parallel have a stage of their own, in which those that take Berth away come last.
func TestAloneTests(t *testing.T) {
	t.Chdir("../..")
	alone := aloneTests()
	names, packages := regexp.MustCompile(alone.pattern()), alone.packages()
	for name, want := range map[string]bool{"TestNodeStopped": true, "TestMigrationFaults": true, "TestChaos": true, "TestUninstall": true,
		"TestMigration": false, "TestMain": false, "TestInstallFromRegistry": false} {
		if names.MatchString(name) != want {
			t.Errorf("%s is alone: %t", name, !want)
		}
	}
	if packages[len(packages)-1] != "./test/e2e/install" || !slices.Contains(packages, "./test/e2e/move") || slices.Contains(packages, "./test/e2e/virtctl") {
		t.Errorf("they are in %s", packages)
	}
}

// TestNarrow: the tests of an area are chosen in both stages, and a stage without any is left out.
func TestNarrow(t *testing.T) {
	t.Chdir("../..")
	for areas, want := range map[string]string{
		"virtctl": "e2e [./test/e2e/virtctl]", "move,virtctl": "e2e [./test/e2e/move ./test/e2e/virtctl] e2e-alone [./test/e2e/move]",
	} {
		chosen, err := choose(stages(), "e2e,e2e-alone")
		if err != nil {
			t.Fatal(err)
		}
		if chosen, err = narrow(chosen, areas); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range chosen {
			got = append(got, s.name, "["+strings.Join(s.packages, " ")+"]")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", areas, got, want)
		}
	}
	if _, err := narrow(stages(), "nowhere"); err == nil {
		t.Error("an area without tests is taken")
	}
}
