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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
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

// TestPausedMachineMoves: a paused machine moves with the limits of its MigrationPolicy, is paused where it comes to, and goes on there.
func TestPausedMachineMoves(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	vm := y.mover("web", kubevirt.Volume{Name: "scratch", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"e2e.berth.dev/policy": y.Namespace}
	y.policy()
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
	if c := s.MigrationConfiguration; s.MigrationPolicyName == nil || *s.MigrationPolicyName != y.Namespace || c == nil || c.BandwidthPerMigration.String() != "512Mi" {
		t.Errorf("its limits are %+v", s)
	}
	v.must("unpause", "vm", "web")
	y.status(vm, kubevirt.StatusRunning, patience)
	y.pattern(vm, "verify", 7, "scratch")
}

// policy makes a MigrationPolicy for the instances with a label that names the test's namespace.
func (y *yard) policy() {
	y.T.Helper()
	p := &migrationsv1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: y.Namespace}, Spec: migrationsv1.MigrationPolicySpec{
		Selectors:             &migrationsv1.Selectors{VirtualMachineInstanceSelector: migrationsv1.LabelSelector{"e2e.berth.dev/policy": y.Namespace}},
		BandwidthPerMigration: new(resource.MustParse("512Mi"))}}
	if err := y.kube.Create(y.Context(), p); err != nil {
		y.T.Fatal(err)
	}
	y.T.Cleanup(func() { _ = y.kube.Delete(context.Background(), p) })
}
