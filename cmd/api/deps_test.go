package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: the API writes requests down; it neither carries them out nor moves bytes.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("list dependencies: %v\n%s", err, out)
	}
	for dep := range strings.SplitSeq(string(out), "\n") {
		for _, foreign := range []string{"transfer", "controller", "decide"} {
			if strings.HasPrefix(dep, "github.com/berth-vm/berth/internal/"+foreign) {
				t.Errorf("the API contains %s", dep)
			}
		}
	}
}
