//go:build e2e

package framework

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Kubebox runs a command of the program that made the cluster ("node stop NAME"). It fails on a cluster of another making,
// whose nodes are nobody's to stop.
func Kubebox(t *testing.T, args ...string) {
	t.Helper()
	named := Kubeconfig(t)
	program := filepath.Join(filepath.Dir(named), "..", "bin", "kubebox")
	// Not the test's own context: a node must be started again also when the test has run out of time.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "kubeconfig").Output()
	if err != nil {
		t.Fatalf("ask kubebox for its cluster: %v", err)
	}
	if ours := strings.TrimSpace(string(out)); !sameFile(ours, named) {
		t.Fatalf("this test stops nodes of a kubebox cluster; %s names %s, and kubebox runs %s", KubeconfigVariable, named, ours)
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		t.Fatalf("kubebox %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
