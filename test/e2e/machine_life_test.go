//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

func jsonText(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestMachineLife is a machine from its first start to its last, with the test guest in it: cloud-init, console, disks that
// come and go while it runs, data that outlives a restart, and an end of its own.
func TestMachineLife(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	vm := y.tiny("life", "localdisk")
	bootKernel(vm, "disks")
	spec := &vm.Spec.Template.Spec
	vm.Spec.RunStrategy = new(kubevirt.RunManual)
	spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "life-0", Serial: "FIRST"}}
	spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: "seed", VolumeSource: kubevirt.VolumeSource{
		CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "#berth-guest\nwrite serial=FIRST 0 65536 7\n"}}})
	spec.ReadinessProbe = &kubevirt.Probe{GuestAgentPing: &kubevirt.GuestAgentPing{}, PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 100}
	y.create(vm)
	y.status(vm, kubevirt.StatusStopped, patience)

	t.Log("started by a request")
	start := kubevirt.StateChangeRequest{Action: kubevirt.StartRequest}
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) { s.StateChangeRequests = []kubevirt.StateChangeRequest{start} })
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "user-data| write serial=FIRST 0 65536 7")
	y.guestSays(vm, "write serial=FIRST 0 65536 7: ")
	y.Wait("the guest's agent to answer the readiness probe", boot, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.Ready, why(vm)
	})

	t.Log("a disk that stays, bound by the machine's node")
	y.volume("stays", "localdisk")
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: added("stays", kubevirt.BusVirtio)}}
	})
	y.plugged(vm, "stays")
	y.guestSays(vm, "serial=stays size=")
	y.typeLine(vm, "write serial=stays 4096 65536 8")
	y.guestSays(vm, "write serial=stays 4096 65536 8: ")
	_, launchers := y.pods(t.Context(), vm)
	if at := framework.VolumeNode(y.WaitBound("stays")); at != launchers[0].Spec.NodeName {
		t.Errorf("the disk is on %s, the machine on %s", at, launchers[0].Spec.NodeName)
	}

	t.Log("a disk for this run, in a directory")
	y.volume("goes", "local")
	y.changeInstance(vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "goes", VolumeSource: kubevirt.VolumeSource{
			DataVolume: &kubevirt.DataVolumeSource{Name: "goes", Hotpluggable: true}}})
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, *added("goes", kubevirt.BusSCSI).Disk)
	})
	y.plugged(vm, "goes")
	y.guestSays(vm, "disk added sda bus=scsi serial=goes")
	y.changeInstance(vm, func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = slices.DeleteFunc(s.Volumes, func(v kubevirt.Volume) bool { return v.Name == "goes" })
		s.Domain.Devices.Disks = slices.DeleteFunc(s.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == "goes" })
	})
	y.guestSays(vm, "disk removed sda")
	y.Wait("nothing of the removed disk to be left", patience, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		pods, err := y.Client.CoreV1().Pods(y.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "berth.dev/volume=goes"})
		return err == nil && i != nil && statusOf(i, "goes") == nil && len(pods.Items) == 0, fmt.Sprintf("%+v, %d pods", statusOf(i, "goes"), len(pods.Items))
	})

	t.Log("rebooted by its guest, which is nobody else's business")
	y.typeLine(vm, "reboot")
	y.guestSaysAgain(vm, "berth-guest: ready", 2)
	y.typeLine(vm, "verify serial=stays 4096 65536 8")
	y.guestSays(vm, "verify serial=stays 4096 65536 8: same")
	if _, now := y.pods(t.Context(), vm); len(now) != 1 || now[0].UID != launchers[0].UID || now[0].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the guest rebooted and its launcher is another: %+v, was %s", now, launchers[0].UID)
	}

	t.Log("restarted with what it has now")
	old := y.instance(t.Context(), vm)
	pressed := y.overhear(vm, "power button pressed")
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.StateChangeRequests = []kubevirt.StateChangeRequest{{Action: kubevirt.StopRequest, UID: &old.UID}, start}
	})
	y.Wait("the next instance to run", boot, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		return i != nil && i.UID != old.UID && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprintf("%v", i)
	})
	if !pressed() {
		t.Error("the guest was switched off without being asked to shut down")
	}
	y.guestSays(vm, "ready")
	y.typeLine(vm, "verify serial=FIRST 0 65536 7")
	y.guestSays(vm, "verify serial=FIRST 0 65536 7: same")
	y.typeLine(vm, "verify serial=stays 4096 65536 8")
	y.guestSays(vm, "verify serial=stays 4096 65536 8: same")

	t.Log("removed for good, from a machine that was started with it")
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "stays"}}}
	})
	y.guestSays(vm, "disk removed vd")
	t.Log("wanted after all, and then not")
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: added("stays", kubevirt.BusVirtio)}}
	})
	y.guestSays(vm, "disk added vd")
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{RemoveVolumeOptions: &kubevirt.RemoveVolumeOptions{Name: "stays"}}}
	})
	y.guestSaysAgain(vm, "disk removed vd", 2)

	t.Log("the guest ends it")
	y.typeLine(vm, "poweroff")
	y.status(vm, kubevirt.StatusStopped, boot)
	if i := y.instance(t.Context(), vm); i == nil || i.Status.Phase != kubevirt.PhaseSucceeded || !strings.Contains(why(vm), "powered off") {
		t.Errorf("after the guest powered off: %s, %+v", why(vm), i)
	}
	if slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == "stays" }) {
		t.Error("the machine's template still has the volume that was removed for good")
	}
}

// kubectl runs kubectl in the test's namespace.
func (y *yard) kubectl(args ...string) string {
	y.T.Helper()
	return kubectl(y.Env, args...)
}

func (b *bed) kubectl(args ...string) string {
	b.T.Helper()
	return kubectl(b.Env, args...)
}

func kubectl(e *framework.Env, args ...string) string {
	e.T.Helper()
	out, err := exec.CommandContext(e.Context(), "../../bin/kubectl",
		append([]string{"--kubeconfig", framework.Kubeconfig(e.T), "-n", e.Namespace}, args...)...).CombinedOutput()
	if err != nil {
		e.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (y *yard) volume(name, class string) {
	y.T.Helper()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}, Spec: blank(class)}
	if err := y.kube.Create(y.Context(), v); err != nil {
		y.T.Fatal(err)
	}
}

func added(name string, bus kubevirt.DiskBus) *kubevirt.AddVolumeOptions {
	return &kubevirt.AddVolumeOptions{
		Name:         name,
		Disk:         &kubevirt.Disk{Name: name, Serial: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: bus}}},
		VolumeSource: &kubevirt.HotplugVolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name}},
	}
}

// plugged waits until the guest has the volume.
func (y *yard) plugged(vm *kubevirt.VirtualMachine, name string) {
	y.T.Helper()
	y.Wait("volume "+name+" to be Ready", boot, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		if i == nil {
			return false, "no instance"
		}
		s := statusOf(i, name)
		return s != nil && s.Phase == kubevirt.VolumeReady, fmt.Sprintf("%+v", s)
	})
}

func statusOf(i *kubevirt.VirtualMachineInstance, volume string) *kubevirt.VolumeStatus {
	if i == nil {
		return nil
	}
	for n := range i.Status.VolumeStatus {
		if i.Status.VolumeStatus[n].Name == volume {
			return &i.Status.VolumeStatus[n]
		}
	}
	return nil
}

// changeInstance changes the present run alone, as the aggregated API does.
func (y *yard) changeInstance(vm *kubevirt.VirtualMachine, change func(*kubevirt.VirtualMachineInstanceSpec)) {
	y.T.Helper()
	y.Wait("the instance to be changed", patience, func(ctx context.Context) (bool, string) {
		i := y.instance(ctx, vm)
		if i == nil {
			return false, "no instance"
		}
		next := i.DeepCopy()
		change(&next.Spec)
		err := y.kube.Patch(ctx, next, client.MergeFromWithOptions(i, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}
