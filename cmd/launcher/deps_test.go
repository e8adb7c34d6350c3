package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: the launcher does not know the Kubernetes API; its orders are files.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("list dependencies: %v\n%s", err, out)
	}
	for dep := range strings.SplitSeq(string(out), "\n") {
		for _, not := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/berth-vm/berth/internal/cluster"} {
			if strings.HasPrefix(dep, not) {
				t.Errorf("the launcher contains %s", dep)
			}
		}
	}
}
