//go:build e2e

package snapshot

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestSnapshotWithoutClaims: a snapshot of a machine without claims has the machine and succeeds, and so does its restore, which goes with the
// machine.
func TestSnapshotWithoutClaims(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("bare")
	vm.Spec.RunStrategy = new(kubevirt.RunHalted)
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	y.SnapshotMachine("then", vm.Name)
	group := "kubevirt.io"
	r := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "back"}}
	r.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: vm.Name}
	r.Spec.VirtualMachineSnapshotName = "then"
	if err := y.Kube.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	y.WaitRestored("back")
	if err := y.Kube.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil || !metav1.IsControlledBy(r, vm) {
		t.Errorf("%v: %+v", err, r.OwnerReferences)
	}
	for _, want := range []string{"SuccessfulVirtualMachineSnapshotContentCreate", "VirtualMachineRestoreComplete"} {
		y.Wait("event "+want, fixture.Patience, func(context.Context) (bool, string) {
			events := y.Kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
			return strings.Contains(events, want), events
		})
	}
}
