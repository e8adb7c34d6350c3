package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: the proxy hands bytes on; it does not look into them, and decides nothing.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("list dependencies: %v\n%s", err, out)
	}
	for dep := range strings.SplitSeq(string(out), "\n") {
		for _, foreign := range []string{"transfer/format", "transfer/decode", "transfer/sink", "controller", "decide"} {
			if strings.HasPrefix(dep, "github.com/berth-vm/berth/internal/"+foreign) {
				t.Errorf("the proxy contains %s", dep)
			}
		}
	}
}
