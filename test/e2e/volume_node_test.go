//go:build e2e

package e2e

import (
	"strings"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/framework"
)

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

	t.Cleanup(func() { framework.Kubebox(t, "node", "start", node) })
	framework.Kubebox(t, "node", "stop", node)
	dv := b.until("disk", "to say that its node is gone", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(message(dv), node)
	})
	if dv.Status.Phase == cdiv1.Failed || dv.Status.Phase == cdiv1.Succeeded {
		t.Errorf("phase is %s while the node is away", dv.Status.Phase)
	}
	framework.Kubebox(t, "node", "start", node)
	release()
	dv = b.untilPhase("disk", cdiv1.Succeeded)
	t.Logf("complete after %d restarts", dv.Status.RestartCount)
	b.holds("disk", image(24), 40*mib)
}
