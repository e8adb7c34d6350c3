//go:build e2e

package snapshot

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestCloneMachine: the example machine is cloned while it runs. The clone has the data of that moment on disks of its own, the labels that were
// chosen and another serial number; a machine that exists is left alone, and nothing of the way to the clone is left.
func TestCloneMachine(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	close(y.Gate.Open)
	text, err := os.ReadFile("../../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	y.Apply(strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.GuestURL, 1))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	tell(y, vm, "write data 0 1048576 1", "")
	tell(y, vm, "write vdb 0 1048576 2", "")
	labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"web","team/owner":"me"}}}`))
	if err := y.Kube.Patch(t.Context(), vm, labels); err != nil {
		t.Fatal(err)
	}
	serial := "copy-1"
	c := y.NewMachineClone("c", "web", "copy")
	c.Spec.LabelFilters, c.Spec.NewSMBiosSerial = []clonev1.Filter{"*", "!team/"}, &serial
	cloned(y, c, clonev1.Succeeded)
	tell(y, vm, "write data 0 1048576 7", "")
	target := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "copy"}}
	if err := y.Kube.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil {
		t.Fatal(err)
	}
	if f := target.Spec.Template.Spec.Domain.Firmware; target.Labels["app"] != "web" || target.Labels["team/owner"] != "" || f == nil || f.Serial != serial {
		t.Errorf("labels %v, firmware %+v", target.Labels, f)
	}
	y.Wait("nothing of the clone is left", fixture.BootPatience, func(context.Context) (bool, string) {
		left := y.Kubectl("get", "vmsnapshot,vmrestore", "-o", "name")
		return strings.TrimSpace(left) == "", left
	})
	if err := y.Kube.Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))); err != nil {
		t.Fatal(err)
	}
	y.WaitStatus(target, kubevirt.StatusRunning, fixture.BootPatience)
	tell(y, target, "verify data 0 1048576 1", "same")
	tell(y, target, "verify vdb 0 1048576 2", "same")

	uid := target.UID
	again := y.NewMachineClone("again", "web", "copy")
	cloned(y, again, clonev1.Failed)
	if err := y.Kube.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil || target.UID != uid {
		t.Errorf("the machine that was there is another one: %v", err)
	}
	if err := y.Kube.Delete(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	y.Wait("the clone goes with its target", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(c), c)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// cloned makes a clone and waits until it has come to that end.
func cloned(y *fixture.Machines, c *clonev1.VirtualMachineClone, want clonev1.Phase) {
	y.T.Helper()
	if err := y.Kube.Create(y.Context(), c); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("clone "+c.Name, fixture.BootPatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return false, err.Error()
		}
		return c.Status.Phase == want, fmt.Sprint(c.Status.Phase, c.Status.Conditions)
	})
}
