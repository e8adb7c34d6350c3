//go:build e2e

package move

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
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestMachineOutgrowsItsDataVolume: a machine says DataVolumeError while its import fails, and runs when it succeeds. Then its owner removes the
// DataVolume and makes the machine the owner of the claim: the machine runs with it, and no DataVolume is made again.
func TestMachineOutgrowsItsDataVolume(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	var works atomic.Bool
	files := y.Gate.Files
	y.Gate.Files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			http.Error(w, "not today", http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(w, r)
	})
	close(y.Gate.Open)
	vm := y.ExampleMachine("web")
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusDataVolumeError, fixture.Patience)
	if !strings.Contains(fixture.ReadyMessage(vm), "web-root") {
		t.Errorf("it says: %s", fixture.ReadyMessage(vm))
	}
	works.Store(true)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)

	v.Must("stop", "web", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)
	y.Kubectl("patch", "pvc", "web-root", "--type=merge", "-p", fmt.Sprintf(
		`{"metadata":{"ownerReferences":[{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"web","uid":%q,"controller":true,"blockOwnerDeletion":true}]}}`, vm.UID))
	claim := y.ClaimUID("web-root")
	v.Must("start", "web") // the DataVolume is still there
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	v.Must("stop", "web", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)
	y.Kubectl("delete", "datavolume", "web-root")
	v.Must("start", "web")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if got := y.Kubectl("get", "datavolume", "-o", "name"); strings.Contains(got, "web-root") || !strings.Contains(got, "web-data") || y.ClaimUID("web-root") != claim {
		t.Errorf("it runs with DataVolumes %s", got)
	}
}

// TestPausedMachineMoves: a paused machine moves with the limits of its MigrationPolicy, is paused where it comes to, and continues there.
func TestPausedMachineMoves(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	vm := y.MovableMachine("web", kubevirt.Volume{Name: "scratch", VolumeSource: kubevirt.VolumeSource{EmptyDisk: &kubevirt.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}})
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"e2e.berth.dev/policy": y.Namespace}
	policy(y)
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "write", 7, "scratch")
	from := y.InstanceOf(y.Context(), vm).Status.NodeName
	v.Must("pause", "vm", "web")
	y.WaitStatus(vm, kubevirt.StatusPaused, fixture.Patience)
	if m := y.Migrate(vm, "away"); m.Status.Phase != kubevirt.MigrationSucceeded {
		t.Fatalf("a paused machine does not move: %s", fixture.MigrationSays(m))
	}
	y.WaitStatus(vm, kubevirt.StatusPaused, fixture.Patience)
	y.Wait("the instance to be elsewhere and paused", fixture.Patience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		paused := false
		for _, c := range i.Status.Conditions {
			paused = paused || c.Type == "Paused" && c.Reason == "PausedByUser"
		}
		return i.Status.NodeName != from && paused, fmt.Sprintf("on %s: %+v", i.Status.NodeName, i.Status.Conditions)
	})
	s := y.InstanceOf(y.Context(), vm).Status.MigrationState
	if s == nil || !s.Completed || s.AbortRequested || s.TargetNodeDomainReadyTimestamp == nil || s.SourceNode != from || s.TargetNodeAddress == "" {
		t.Errorf("it shows %+v", s)
	}
	if c := s.MigrationConfiguration; s.MigrationPolicyName == nil || *s.MigrationPolicyName != y.Namespace || c == nil || c.BandwidthPerMigration.String() != "512Mi" {
		t.Errorf("its limits are %+v", s)
	}
	v.Must("unpause", "vm", "web")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.Patience)
	y.RunPattern(vm, "verify", 7, "scratch")
}

// policy makes a MigrationPolicy for the instances with a label that names the test's namespace.
func policy(y *fixture.Machines) {
	y.T.Helper()
	p := &migrationsv1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: y.Namespace}, Spec: migrationsv1.MigrationPolicySpec{
		Selectors:             &migrationsv1.Selectors{VirtualMachineInstanceSelector: migrationsv1.LabelSelector{"e2e.berth.dev/policy": y.Namespace}},
		BandwidthPerMigration: new(resource.MustParse("512Mi")), MaxDowntimeMs: new(int64(400))}}
	if err := y.Kube.Create(y.Context(), p); err != nil {
		y.T.Fatal(err)
	}
	y.T.Cleanup(func() { _ = y.Kube.Delete(context.Background(), p) })
}
