//go:build e2e

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// kubebox runs a command of the program that runs the cluster under test, and makes sure first that it is that cluster.
func kubebox(t *testing.T, args ...string) {
	t.Helper()
	program, err := filepath.Abs("../../../bin/kubebox")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "kubeconfig").Output()
	if err != nil {
		t.Fatalf("ask kubebox for its cluster: %v", err)
	}
	if ours, named := strings.TrimSpace(string(out)), framework.Kubeconfig(t); !sameFile(ours, named) {
		t.Fatalf("this test stops nodes of a kubebox cluster; %s names %s, and kubebox runs %s", framework.KubeconfigVariable, named, ours)
	}
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
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

// These two are not parallel: the testing package runs them before the parallel ones, which would otherwise lose their pods.

func TestStoppedNodeComesBack(t *testing.T) {
	e := framework.New(t)
	names := nodes(e, 3)
	node := names[len(names)-1]
	e.Create(framework.Claim{Name: "data", Class: "local"})
	e.Run(framework.Pod{Name: "writer", Node: node, Claims: []string{"data"}, Script: "echo survives > /data/file; sync"})
	t.Cleanup(func() { start(t, node) })

	kubebox(t, "node", "stop", node)
	waitReady(e, node, false)
	kubebox(t, "node", "start", node)
	waitReady(e, node, true)
	out := e.Run(framework.Pod{Name: "reader", Claims: []string{"data"}, Script: "cat /data/file; hostname >/dev/null"})
	if strings.TrimSpace(out) != "survives" {
		t.Errorf("after the node came back its volume holds %q, want what was written before", out)
	}
}

func TestNodeThatWasCutOffHeals(t *testing.T) {
	e := framework.New(t)
	names := nodes(e, 3)
	node := names[len(names)-1]
	e.Start(framework.Pod{Name: "survivor", Node: node, Script: "n=0; while :; do n=$((n+1)); echo $n; sleep 1; done"})
	e.WaitRunning("survivor")
	t.Cleanup(func() { start(t, node) })

	kubebox(t, "node", "cut", node)
	waitReady(e, node, false)
	kubebox(t, "node", "start", node)
	waitReady(e, node, true)
	pod := e.WaitRunning("survivor")
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the pod on the node that was cut off was restarted %d times: it should not have noticed", n)
	}
	if out := e.Output("survivor"); !strings.HasPrefix(out, "1\n") {
		t.Errorf("the pod's output starts with %.20q, want the output of its first start", out)
	}
}

// start brings the node back whatever the test's outcome. The test's own context has ended by then.
func start(t *testing.T, node string) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "../../../bin/kubebox", "node", "start", node).CombinedOutput(); err != nil {
		t.Errorf("bring node %s back: %v\n%s", node, err, out)
	}
}

func waitReady(e *framework.Env, name string, want bool) {
	e.T.Helper()
	word := map[bool]string{true: "Ready", false: "NotReady"}[want]
	e.Wait("node "+name+" to be "+word, 2*time.Minute, func(ctx context.Context) (bool, string) {
		n, err := e.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return framework.NodeReady(n) == want, describe(n)
	})
}

func describe(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return string(c.Status) + " " + c.Message
		}
	}
	return "no Ready condition"
}
