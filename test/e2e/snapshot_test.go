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

// restored waits until a restore is complete.
func (y *yard) restored(name string) {
	y.T.Helper()
	y.Wait("restore "+name, boot, func(ctx context.Context) (bool, string) {
		var r snapshotv1.VirtualMachineRestore
		if err := y.kube.Get(ctx, client.ObjectKey{Namespace: y.Namespace, Name: name}, &r); err != nil {
			return false, err.Error()
		}
		return r.Status.Complete != nil && *r.Status.Complete, fmt.Sprint(r.Status.Conditions)
	})
}

// withVolume is the example machine with a third disk, in a DataVolume of its own.
func withVolume(manifest string) string {
	return strings.NewReplacer("  volumeClaimTemplates:\n", `  dataVolumeTemplates:
    - metadata:
        name: web-third
      spec:
        source:
          blank: {}
        storage:
          storageClassName: localdisk
          resources:
            requests:
              storage: 16Mi
  volumeClaimTemplates:
`, "              serial: DATA\n", `              serial: DATA
            - name: third
              disk:
                bus: virtio
`, "      volumes:\n", `      volumes:
        - name: third
          dataVolume:
            name: web-third
`).Replace(manifest)
}

// TestMachineSnapshot takes the example machine through snapshots and restores: one while its guest runs and is frozen
// through its agent, one while it is stopped. The restore replaces its claims under the same names, the guest finds the
// data of that moment, the disk in a DataVolume too, and applying the machine again changes nothing. A restore to a
// machine that does not exist makes it, with claims of its own and the same data.
func TestMachineSnapshot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	text, err := os.ReadFile("../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.url, 1)
	manifest = withVolume(manifest)
	first := y.apply(manifest)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "guest agent on")
	y.tell(vm, "write data 0 1048576 1", "")
	y.tell(vm, "write vdb 0 1048576 2", "")
	y.tell(vm, "write vdc 0 1048576 3", "")

	online := y.snapshot("online", "web")
	if want := []snapshotv1.Indication{snapshotv1.Online, snapshotv1.GuestAgent}; !slices.Equal(online.Status.Indications, want) {
		t.Errorf("indications are %v", online.Status.Indications)
	}
	if v := online.Status.SnapshotVolumes; v == nil || len(v.IncludedVolumes) != 3 || len(v.ExcludedVolumes) != 0 {
		t.Errorf("volumes are %+v", v)
	}
	if got := y.kubectl("get", "vmsnapshotcontent", "-o", "jsonpath={.items[*].spec.volumeBackups[*].persistentVolumeClaim.spec.volumeName}"); len(strings.Fields(got)) != 3 {
		t.Errorf("the claims in the content have volumes %q", got)
	}
	y.guestSays(vm, "frozen")
	y.guestSays(vm, "thawed")
	y.tell(vm, "write data 0 1048576 7", "")
	y.tell(vm, "write vdb 0 1048576 8", "")
	y.tell(vm, "write vdc 0 1048576 9", "")

	before := map[string]types.UID{}
	for _, name := range []string{"web-root", "web-data", "web-third"} {
		before[name] = y.claimUID(name)
	}
	y.apply(restoring)
	y.restored("back")
	y.status(vm, kubevirt.StatusRunning, boot) // its strategy is Always: it starts again by itself
	asThen := func(vm *kubevirt.VirtualMachine) {
		t.Helper()
		y.tell(vm, "verify data 0 1048576 1", "same")
		y.tell(vm, "verify vdb 0 1048576 2", "same")
		y.tell(vm, "verify vdc 0 1048576 3", "same")
	}
	asThen(vm)
	for name, uid := range before {
		if y.claimUID(name) == uid {
			t.Errorf("claim %s was not replaced", name)
		}
	}
	if again := y.apply(manifest); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again after the restore: generations were %v and are %v", first, again)
	}

	y.apply(strings.NewReplacer("name: back", "name: elsewhere", "name: web", "name: copy", "targetReadinessPolicy: StopTarget",
		`patches: ['{"op": "replace", "path": "/spec/runStrategy", "value": "Always"}']`).Replace(restoring))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Halted"}}`))
	if err := y.kube.Patch(t.Context(), vm, patch); err != nil {
		t.Fatal(err)
	}
	y.status(vm, kubevirt.StatusStopped, boot)
	if offline := y.snapshot("offline", "web"); len(offline.Status.Indications) != 0 {
		t.Errorf("indications of a stopped machine are %v", offline.Status.Indications)
	}
	y.restored("elsewhere")
	other := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "copy"}}
	y.status(other, kubevirt.StatusRunning, boot) // as the patch says
	asThen(other)
	for _, name := range []string{"copy-root", "copy-data", "copy-third"} {
		y.claimUID(name)
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
