//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
)

// snapshot takes a snapshot of the machine and waits for it.
func (y *yard) snapshot(name, machine string) *snapshotv1.VirtualMachineSnapshot {
	y.T.Helper()
	group := "kubevirt.io"
	s := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}}
	s.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: machine}
	if err := y.kube.Create(y.Context(), s); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("snapshot "+name, 3*time.Minute, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return false, err.Error()
		}
		return s.Status.Phase == snapshotv1.Succeeded, fmt.Sprintf("%s: %v", s.Status.Phase, s.Status.Conditions)
	})
	return s
}

// TestMachineSnapshot takes the example machine through snapshots and a restore: one while its guest runs and is frozen
// through its agent, one while it is stopped. The restore replaces its claims under the same names, the guest finds the
// data of that moment, and applying the machine again changes nothing.
func TestMachineSnapshot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	text, err := os.ReadFile("../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.url, 1)
	first := y.apply(manifest)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "guest agent on")
	y.tell(vm, "write data 0 1048576 1", "")
	y.tell(vm, "write vdb 0 1048576 2", "")

	online := y.snapshot("online", "web")
	if want := []snapshotv1.Indication{snapshotv1.Online, snapshotv1.GuestAgent}; !slices.Equal(online.Status.Indications, want) {
		t.Errorf("indications are %v", online.Status.Indications)
	}
	if v := online.Status.SnapshotVolumes; v == nil || len(v.IncludedVolumes) != 2 || len(v.ExcludedVolumes) != 0 {
		t.Errorf("volumes are %+v", v)
	}
	y.guestSays(vm, "frozen")
	y.guestSays(vm, "thawed")
	y.tell(vm, "write data 0 1048576 8", "")
	y.tell(vm, "write vdb 0 1048576 9", "")

	before := map[string]types.UID{}
	for _, name := range []string{"web-root", "web-data"} {
		before[name] = y.claimUID(name)
	}
	y.apply(restoring)
	y.Wait("the restore", boot, func(ctx context.Context) (bool, string) {
		var r snapshotv1.VirtualMachineRestore
		if err := y.kube.Get(ctx, client.ObjectKey{Namespace: y.Namespace, Name: "back"}, &r); err != nil {
			return false, err.Error()
		}
		return r.Status.Complete != nil && *r.Status.Complete, fmt.Sprint(r.Status.Conditions)
	})
	y.status(vm, kubevirt.StatusRunning, boot) // its strategy is Always: it starts again by itself
	y.tell(vm, "verify data 0 1048576 1", "same")
	y.tell(vm, "verify vdb 0 1048576 2", "same")
	for name, uid := range before {
		if y.claimUID(name) == uid {
			t.Errorf("claim %s was not replaced", name)
		}
	}
	if again := y.apply(manifest); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again after the restore: generations were %v and are %v", first, again)
	}

	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Halted"}}`))
	if err := y.kube.Patch(t.Context(), vm, patch); err != nil {
		t.Fatal(err)
	}
	y.status(vm, kubevirt.StatusStopped, boot)
	if offline := y.snapshot("offline", "web"); len(offline.Status.Indications) != 0 {
		t.Errorf("indications of a stopped machine are %v", offline.Status.Indications)
	}
}

const restoring = `
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineRestore
metadata:
  name: back
spec:
  target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: web}
  virtualMachineSnapshotName: online
  targetReadinessPolicy: StopTarget
`

func (y *yard) claimUID(name string) types.UID {
	y.T.Helper()
	c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(y.Context(), name, metav1.GetOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	return c.UID
}
