//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestCloneMachine: the example machine is cloned while it runs. The clone has the data of that moment on disks of its own, the labels that were
// chosen and another serial number; a machine that exists is left alone, and nothing of the way to the clone is left.
func TestCloneMachine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	close(y.gate.open)
	text, err := os.ReadFile("../../examples/vm-claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	y.apply(strings.Replace(strings.ReplaceAll(string(text), "storage: 1Gi", "storage: 320Mi"), "http://images.example.org/guest.qcow2", y.url, 1))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "web"}}
	y.status(vm, kubevirt.StatusRunning, boot)
	y.tell(vm, "write data 0 1048576 1", "")
	y.tell(vm, "write vdb 0 1048576 2", "")
	labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"web","team/owner":"me"}}}`))
	if err := y.kube.Patch(t.Context(), vm, labels); err != nil {
		t.Fatal(err)
	}
	serial := "copy-1"
	c := y.clone("c", "web", "copy")
	c.Spec.LabelFilters, c.Spec.NewSMBiosSerial = []clonev1.Filter{"*", "!team/"}, &serial
	y.cloned(c, clonev1.Succeeded)
	y.tell(vm, "write data 0 1048576 7", "")
	target := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "copy"}}
	if err := y.kube.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil {
		t.Fatal(err)
	}
	if f := target.Spec.Template.Spec.Domain.Firmware; target.Labels["app"] != "web" || target.Labels["team/owner"] != "" || f == nil || f.Serial != serial {
		t.Errorf("labels %v, firmware %+v", target.Labels, f)
	}
	y.Wait("nothing of the clone is left", boot, func(context.Context) (bool, string) {
		left := y.kubectl("get", "vmsnapshot,vmrestore", "-o", "name")
		return strings.TrimSpace(left) == "", left
	})
	if err := y.kube.Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))); err != nil {
		t.Fatal(err)
	}
	y.status(target, kubevirt.StatusRunning, boot)
	y.tell(target, "verify data 0 1048576 1", "same")
	y.tell(target, "verify vdb 0 1048576 2", "same")

	uid := target.UID
	again := y.clone("again", "web", "copy")
	y.cloned(again, clonev1.Failed)
	if err := y.kube.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil || target.UID != uid {
		t.Errorf("the machine that was there is another one: %v", err)
	}
	if err := y.kube.Delete(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	y.Wait("the clone goes with its target", boot, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(c), c)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

func (y *yard) clone(name, source, target string) *clonev1.VirtualMachineClone {
	group := "kubevirt.io"
	c := &clonev1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}}
	c.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: source}
	c.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: target}
	return c
}

// cloned makes a clone and waits until it has come to that end.
func (y *yard) cloned(c *clonev1.VirtualMachineClone, want clonev1.Phase) {
	y.T.Helper()
	if err := y.kube.Create(y.Context(), c); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("clone "+c.Name, boot, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return false, err.Error()
		}
		return c.Status.Phase == want, fmt.Sprint(c.Status.Phase, c.Status.Conditions)
	})
}
