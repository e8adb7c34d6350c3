// Package dependencies tells a test what a program is built from. It runs the go command.
package dependencies

import (
	"os/exec"
	"strings"
	"testing"
)

// Berth is the path below which the packages of this module are.
const Berth = "github.com/berth-vm/berth/internal/"

// Refuse fails the test if the program of the current directory contains one of these packages, or a package below one of them.
func Refuse(t *testing.T, packages ...string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("list dependencies: %v\n%s", err, out)
	}
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		for _, p := range packages {
			if dep == p || strings.HasPrefix(dep, p+"/") {
				t.Errorf("the program contains %s", dep)
			}
		}
	}
}
