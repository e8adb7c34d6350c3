//go:build e2e

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestTwoMachinesOneDisk: two machines that are made together and name the same Block claim never run together; the second says
// who has it, and runs when the first has stopped. Two that say that they share it do.
func TestTwoMachinesOneDisk(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Create(framework.Claim{Name: "shared", Class: fixture.ClassDisk, Size: "64Mi", Block: true})
	pair := func(kind string, change func(*kubevirt.Disk)) []*kubevirt.VirtualMachine {
		var out []*kubevirt.VirtualMachine
		for _, n := range []string{"one", "two"} {
			vm := y.TinyMachine(kind + n)
			spec := &vm.Spec.Template.Spec
			spec.Volumes = []kubevirt.Volume{{Name: "disk", VolumeSource: kubevirt.VolumeSource{
				PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "shared"}}}}
			drive := kubevirt.Disk{Name: "disk"}
			change(&drive)
			spec.Domain.Devices.Disks = []kubevirt.Disk{drive}
			y.CreateMachine(vm)
			out = append(out, vm)
		}
		return out
	}
	vms := pair("", func(*kubevirt.Disk) {})
	first, second := oneRuns(y, vms)
	y.Wait("the other to say who has it", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(second), second)
		return err == nil && strings.Contains(fixture.ReadyMessage(second), "machine "+first.Name+" has it write-exclusive"), fixture.ReadyMessage(second)
	})
	y.Stays("only one to run", 10*time.Second, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(second), second)
		return err == nil && second.Status.PrintableStatus != kubevirt.StatusRunning, fixture.ReadyMessage(second)
	})
	y.Kubectl("delete", "vm", first.Name)
	y.WaitStatus(second, kubevirt.StatusRunning, fixture.BootPatience)
	y.Kubectl("delete", "vm", second.Name)
	for _, vm := range pair("shared-", func(d *kubevirt.Disk) { d.Shareable = new(true) }) {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	}
	var records accessv1.DiskAccessList
	if err := y.Kube.List(y.Context(), &records); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, r := range records.Items {
		for _, h := range r.Spec.Holders {
			if h.Namespace == y.Namespace && h.Mode == accessv1.WriteShared && len(r.Spec.Holders) == 2 {
				found++
			}
		}
	}
	if found != 2 {
		t.Errorf("%d holders share the disk", found)
	}
}

// oneRuns waits until one of two machines runs.
func oneRuns(y *fixture.Machines, vms []*kubevirt.VirtualMachine) (runs, waits *kubevirt.VirtualMachine) {
	y.T.Helper()
	y.Wait("one of them to run", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		runs = nil
		said := ""
		for i, vm := range vms {
			if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
				return false, err.Error()
			}
			said += fmt.Sprintf("%s %s: %s; ", vm.Name, vm.Status.PrintableStatus, fixture.ReadyMessage(vm))
			if vm.Status.PrintableStatus == kubevirt.StatusRunning {
				runs, waits = vm, vms[1-i]
			}
		}
		return runs != nil, said
	})
	return runs, waits
}

// TestLauncherDeletedByForce: deleting a running launcher by force does not start a second one beside it. The pod stays until the
// kubelet has reported that its containers have ended, and only then is there another.
func TestLauncherDeletedByForce(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("deleted", fixture.ClassDisk)
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	_, launchers := y.PodsOf(y.Context(), vm)
	if len(launchers) != 1 {
		t.Fatalf("%d launchers", len(launchers))
	}
	w, err := y.Kube.Watch(y.Context(), &corev1.PodList{}, client.InNamespace(y.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	y.Kubectl("delete", "pod", launchers[0].Name, "--force", "--grace-period=0", "--wait=false")
	var last *corev1.Pod
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok || p.Labels["kubevirt.io/domain"] != vm.Name {
			continue
		}
		if p.UID == launchers[0].UID {
			last = p
			continue
		}
		break // the next one
	}
	if last == nil || len(last.Status.ContainerStatuses) != 1 || last.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("there is another launcher before the first has ended: %+v", last)
	}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
}
