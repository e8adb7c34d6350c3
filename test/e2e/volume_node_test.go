//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// kubebox runs a command of the program that runs the cluster under test, once it is sure that it is that cluster. It
// has a context of its own, since it is also called when the test has ended.
func kubebox(t *testing.T, args ...string) {
	t.Helper()
	const program = "../../bin/kubebox"
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "kubeconfig").Output()
	if err != nil {
		t.Fatalf("ask kubebox for its cluster: %v", err)
	}
	ours, err := os.Stat(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("look at kubebox's cluster: %v", err)
	}
	if named, err := os.Stat(os.Getenv(framework.KubeconfigVariable)); err != nil || !os.SameFile(ours, named) {
		t.Fatalf("this test stops a node, and %s does not name a cluster of kubebox", framework.KubeconfigVariable)
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		t.Fatalf("kubebox %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestVolumeNodeStopped: the worker's node goes away in the middle. The volume says so, and is complete after the node
// came back. It is not run beside other tests, which would lose their pods.
func TestVolumeNodeStopped(t *testing.T) {
	b := newBed(t)
	nodes := b.ReadyNodes()
	node := nodes[len(nodes)-1]
	release := b.web.hold()
	b.volume(volume{class: classWaits, storage: "40Mi"})
	b.untilPhase("disk", cdiv1.WaitForFirstConsumer)
	b.consume("disk", node)
	b.untilPhase("disk", cdiv1.ImportInProgress)
	b.Delete("consumer-disk")

	t.Cleanup(func() { kubebox(t, "node", "start", node) })
	kubebox(t, "node", "stop", node)
	dv := b.until("disk", "to say that its node is gone", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(message(dv), node)
	})
	if dv.Status.Phase == cdiv1.Failed || dv.Status.Phase == cdiv1.Succeeded {
		t.Errorf("phase is %s while the node is away", dv.Status.Phase)
	}
	kubebox(t, "node", "start", node)
	release()
	dv = b.untilPhase("disk", cdiv1.Succeeded)
	t.Logf("complete after %d restarts", dv.Status.RestartCount)
	b.holds("disk", image(24), 40*mib)
}
