//go:build e2e

package snapshot

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

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
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	text, err := os.ReadFile("../../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.GuestURL, 1)
	manifest = withVolume(manifest)
	first := y.Apply(manifest)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "guest agent on")
	tell(y, vm, "write data 0 1048576 1", "")
	tell(y, vm, "write vdb 0 1048576 2", "")
	tell(y, vm, "write vdc 0 1048576 3", "")

	online := y.SnapshotMachine("online", "web")
	if want := []snapshotv1.Indication{snapshotv1.Online, snapshotv1.GuestAgent}; !slices.Equal(online.Status.Indications, want) {
		t.Errorf("indications are %v", online.Status.Indications)
	}
	if v := online.Status.SnapshotVolumes; v == nil || len(v.IncludedVolumes) != 3 || len(v.ExcludedVolumes) != 0 {
		t.Errorf("volumes are %+v", v)
	}
	if got := y.Kubectl("get", "vmsnapshotcontent", "-o", "jsonpath={.items[*].spec.volumeBackups[*].persistentVolumeClaim.spec.volumeName}"); len(strings.Fields(got)) != 3 {
		t.Errorf("the claims in the content have volumes %q", got)
	}
	y.GuestSays(vm, "frozen")
	y.GuestSays(vm, "thawed")
	tell(y, vm, "write data 0 1048576 7", "")
	tell(y, vm, "write vdb 0 1048576 8", "")
	tell(y, vm, "write vdc 0 1048576 9", "")

	before := map[string]types.UID{}
	for _, name := range []string{"web-root", "web-data", "web-third"} {
		before[name] = y.ClaimUID(name)
	}
	y.Apply(fixture.RestoreYAML)
	y.WaitRestored("back")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience) // its strategy is Always: it starts again by itself
	asThen := func(vm *kubevirt.VirtualMachine) {
		t.Helper()
		tell(y, vm, "verify data 0 1048576 1", "same")
		tell(y, vm, "verify vdb 0 1048576 2", "same")
		tell(y, vm, "verify vdc 0 1048576 3", "same")
	}
	asThen(vm)
	for name, uid := range before {
		if y.ClaimUID(name) == uid {
			t.Errorf("claim %s was not replaced", name)
		}
	}
	if again := y.Apply(manifest); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again after the restore: generations were %v and are %v", first, again)
	}

	y.Apply(strings.NewReplacer("name: back", "name: elsewhere", "name: web", "name: copy", "targetReadinessPolicy: StopTarget",
		`patches: ['{"op": "replace", "path": "/spec/runStrategy", "value": "Always"}']`).Replace(fixture.RestoreYAML))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Halted"}}`))
	if err := y.Kube.Patch(t.Context(), vm, patch); err != nil {
		t.Fatal(err)
	}
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	if offline := y.SnapshotMachine("offline", "web"); len(offline.Status.Indications) != 0 {
		t.Errorf("indications of a stopped machine are %v", offline.Status.Indications)
	}
	y.WaitRestored("elsewhere")
	other := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "copy"}}
	y.WaitStatus(other, kubevirt.StatusRunning, fixture.BootPatience) // as the patch says
	asThen(other)
	for _, name := range []string{"copy-root", "copy-data", "copy-third"} {
		y.ClaimUID(name)
	}
}
