//go:build e2e

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// These two are not parallel: the testing package runs them before the parallel ones, which would otherwise lose their pods.

func TestStoppedNodeComesBack(t *testing.T) {
	e := framework.New(t)
	names := nodes(e, 3)
	node := names[len(names)-1]
	e.Create(framework.Claim{Name: "data", Class: "local"})
	e.Run(framework.Pod{Name: "writer", Node: node, Claims: []string{"data"}, Script: "echo survives > /data/file; sync"})
	t.Cleanup(func() { framework.Kubebox(t, "node", "start", node) })

	framework.Kubebox(t, "node", "stop", node)
	waitReady(e, node, false)
	framework.Kubebox(t, "node", "start", node)
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
	t.Cleanup(func() { framework.Kubebox(t, "node", "start", node) })

	framework.Kubebox(t, "node", "cut", node)
	waitReady(e, node, false)
	framework.Kubebox(t, "node", "start", node)
	waitReady(e, node, true)
	pod := e.WaitRunning("survivor")
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the pod on the node that was cut off was restarted %d times: it should not have noticed", n)
	}
	if out := e.Output("survivor"); !strings.HasPrefix(out, "1\n") {
		t.Errorf("the pod's output starts with %.20q, want the output of its first start", out)
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
