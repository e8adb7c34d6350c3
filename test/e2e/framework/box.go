//go:build e2e

package framework

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kubebox runs a command of the program that made the cluster ("node stop NAME"). It fails on a cluster of another making, whose
// nodes a test may not stop.
func Kubebox(t *testing.T, args ...string) {
	t.Helper()
	// Not the test's own context: a node must be started again also when the test has run out of time.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, kubebox(ctx, t), args...).CombinedOutput(); err != nil {
		t.Fatalf("kubebox %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// kubebox is the program that made the cluster.
func kubebox(ctx context.Context, t *testing.T) string {
	t.Helper()
	named := Kubeconfig(t)
	program := filepath.Join(filepath.Dir(named), "..", "bin", "kubebox")
	out, err := exec.CommandContext(ctx, program, "kubeconfig").Output()
	if err != nil {
		t.Fatalf("ask kubebox for its cluster: %v", err)
	}
	if ours := strings.TrimSpace(string(out)); !sameFile(ours, named) {
		t.Fatalf("this test does things to nodes of a kubebox cluster; %s names %s, and kubebox runs %s", KubeconfigVariable, named, ours)
	}
	return program
}

// Pace has a pod send so many bytes in a second at most from now on, of which a packet may wait for as long as from far away; 0: as many as it can. Its
// network must be there or come soon. The nodes of a kubebox cluster are processes of this machine, and so are their pods.
func (e *Env) Pace(pod *corev1.Pod, bytes int64) {
	e.T.Helper()
	kubebox(e.Context(), e.T)
	pid := ""
	e.Wait("pod "+pod.Name+" to have a network", time.Minute, func(context.Context) (bool, string) {
		all, err := filepath.Glob("/proc/[0-9]*/cgroup")
		for _, file := range all {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), string(pod.UID)) {
				pid = filepath.Base(filepath.Dir(file))
			}
		}
		return pid != "", fmt.Sprintf("%d processes, none of it: %v", len(all), err)
	})
	order := []string{"--target", pid, "--net", "tc", "qdisc"}
	if bytes > 0 {
		order = append(order, "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprintf("%dbit", 8*bytes), "burst", "64kb", "latency", "50ms")
	} else {
		order = append(order, "delete", "dev", "eth0", "root")
	}
	if out, err := exec.CommandContext(e.Context(), "nsenter", order...).CombinedOutput(); err != nil {
		e.T.Fatalf("nsenter %s: %v\n%s", strings.Join(order, " "), err, out)
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
