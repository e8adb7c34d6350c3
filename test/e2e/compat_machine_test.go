//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestMachineOutgrowsItsDataVolume: a machine says DataVolumeError while its import fails, and runs when it succeeds. Then its owner removes the
// DataVolume and makes the machine the owner of the claim: the machine runs with it, and no DataVolume is made again.
func TestMachineOutgrowsItsDataVolume(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	var works atomic.Bool
	files := y.gate.files
	y.gate.files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			http.Error(w, "not today", http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(w, r)
	})
	close(y.gate.open)
	vm := y.machine("web")
	y.create(vm)
	y.status(vm, kubevirt.StatusDataVolumeError, patience)
	if !strings.Contains(why(vm), "web-root") {
		t.Errorf("it says: %s", why(vm))
	}
	works.Store(true)
	y.status(vm, kubevirt.StatusRunning, boot)

	v.must("stop", "web", "--force", "--grace-period=0")
	y.status(vm, kubevirt.StatusStopped, patience)
	y.kubectl("patch", "pvc", "web-root", "--type=merge", "-p", fmt.Sprintf(
		`{"metadata":{"ownerReferences":[{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"web","uid":%q,"controller":true,"blockOwnerDeletion":true}]}}`, vm.UID))
	claim := y.claimUID("web-root")
	v.must("start", "web") // the DataVolume is still there
	y.status(vm, kubevirt.StatusRunning, boot)
	v.must("stop", "web", "--force", "--grace-period=0")
	y.status(vm, kubevirt.StatusStopped, patience)
	y.kubectl("delete", "datavolume", "web-root")
	v.must("start", "web")
	y.status(vm, kubevirt.StatusRunning, boot)
	if got := y.kubectl("get", "datavolume", "-o", "name"); strings.Contains(got, "web-root") || !strings.Contains(got, "web-data") || y.claimUID("web-root") != claim {
		t.Errorf("it runs with DataVolumes %s", got)
	}
}

// TestPausedMachineMoves: a paused machine leaves a node that is drained, is paused where it comes to, and goes on there.
func TestPausedMachineMoves(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	vm := y.mover("web", kubevirt.Volume{Name: "scratch", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.pattern(vm, "write", 7, "scratch")
	from := y.instance(y.Context(), vm).Status.NodeName
	v.must("pause", "vm", "web")
	y.status(vm, kubevirt.StatusPaused, patience)
	if m := y.migrate(vm, "away"); m.Status.Phase != kubevirt.MigrationSucceeded {
		t.Fatalf("a paused machine does not move: %s", migrationSays(m))
	}
	y.status(vm, kubevirt.StatusPaused, patience)
	y.Wait("the instance to be elsewhere and paused", patience, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		paused := false
		for _, c := range i.Status.Conditions {
			paused = paused || c.Type == "Paused" && c.Reason == "PausedByUser"
		}
		return i.Status.NodeName != from && paused, fmt.Sprintf("on %s: %+v", i.Status.NodeName, i.Status.Conditions)
	})
	s := y.instance(y.Context(), vm).Status.MigrationState
	if s == nil || !s.Completed || s.AbortRequested || s.TargetNodeDomainReadyTimestamp == nil || s.SourceNode != from || s.TargetNodeAddress == "" {
		t.Errorf("it shows %+v", s)
	}
	v.must("unpause", "vm", "web")
	y.status(vm, kubevirt.StatusRunning, patience)
	y.pattern(vm, "verify", 7, "scratch")
}
