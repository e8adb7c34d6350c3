package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: the controller never moves bytes itself.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("list dependencies: %v\n%s", err, out)
	}
	for dep := range strings.SplitSeq(string(out), "\n") {
		if strings.HasPrefix(dep, "github.com/berth-vm/berth/internal/transfer") {
			t.Errorf("the controller contains %s", dep)
		}
	}
}
