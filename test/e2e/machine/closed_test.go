//go:build e2e

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestMachineIsClosed: a guest gets no answer from its launcher, by the loopback or by the pod's address; QEMU runs in its
// sandbox; and the pod that holds a disk of a running guest cannot be evicted before the guest.
func TestMachineIsClosed(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("closed", "localdisk")
	fixture.BootKernel(vm, "disks")
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "network eth0 ") // it has an address, after it is ready
	_, launchers := y.PodsOf(t.Context(), vm)
	for _, host := range []string{"10.0.2.2", launchers[0].Status.PodIP} {
		for _, page := range []string{launcherapi.ReturnsPath, "/probe/liveness", "/ready"} {
			ask := fmt.Sprintf("get %s:%d %s", host, launcherapi.ReadyPort, page)
			y.TypeLine(vm, ask)
			y.GuestSays(vm, ask+": HTTP/1.0 403 Forbidden")
		}
	}
	out := y.Kubectl("exec", launchers[0].Name, "-c", "compute", "--", "/bin/sh", "-c",
		"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
	if !strings.Contains(out, "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny") {
		t.Errorf("QEMU has no sandbox:\n%s", out)
	}

	y.CreateBlankVolume("extra", "localdisk")
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: fixture.AddVolumeOptions("extra", kubevirt.BusVirtio)}}
	})
	y.WaitPlugged(vm, "extra")
	holders, err := y.Client.CoreV1().Pods(y.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "berth.dev/volume=extra"})
	if err != nil || len(holders.Items) != 1 {
		t.Fatalf("holders: %v, %v", holders, err)
	}
	y.Wait("the holder to be kept from an eviction", fixture.Patience, func(ctx context.Context) (bool, string) {
		dry := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: holders.Items[0].Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}
		err := y.Client.CoreV1().Pods(y.Namespace).EvictV1(ctx, dry)
		return apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "disruption budget"), fmt.Sprint(err)
	})
}

// TestHostDiskIsOff: neither a machine nor an instance that a user makes directly gets a directory of the node.
func TestHostDiskIsOff(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.TinyMachine("host")
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "etc", VolumeSource: kubevirt.VolumeSource{
		HostDisk: &kubevirt.HostDisk{Path: "/etc/shadow", Type: "Disk"}}}}
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "direct"}, Spec: vm.Spec.Template.Spec}
	y.CreateMachine(vm)
	if err := y.Kube.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	y.WaitStatus(vm, kubevirt.StatusDataVolumeError, fixture.Patience)
	y.Wait("the instance to be refused", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(i), i)
		return err == nil && i.Status.Reason == "HostDiskForbidden", fmt.Sprint(i.Status.Reason, err)
	})
	if !strings.Contains(fixture.ReadyMessage(vm), "hostDisk is switched off") {
		t.Errorf("it says: %s", fixture.ReadyMessage(vm))
	}
	pods, err := y.Client.CoreV1().Pods(y.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("%d pods, %v", len(pods.Items), err)
	}
}
