//go:build e2e

package netdisk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestContainerVolumeISCSI is the whole life of a disk that a container makes with tgt, in the proposal's own spelling: a guest boots from
// it, it outlives the instance, the container and the container's pod, and goes with the machine.
func TestContainerVolumeISCSI(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Create(framework.Claim{Name: "luns", Class: "localdisk", Size: "1Gi"})
	text := fixture.ContainerVolumeYAML("seed", y.ISCSIMakerYAML(""))
	first := y.Apply(text)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "seed"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	if again := y.Apply(text); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("applied again: generations were %v and are %v", first, again)
	}
	made, pod := y.MadeOf(t.Context(), vm, "root"), y.MakerPod(t.Context(), vm, "root")
	i := y.InstanceOf(t.Context(), vm)
	if i == nil || len(i.Spec.Volumes) != 1 || i.Spec.Volumes[0].ISCSI == nil || i.Spec.Volumes[0].Container != nil ||
		i.Spec.Volumes[0].ISCSI.Host.Name != pod.Status.PodIP || i.Spec.Volumes[0].ISCSI.LUN != 1 || made.Spec.Source == nil {
		t.Fatalf("the instance has not what the container made: %+v %+v", i.Spec.Volumes, made)
	}
	restrictedMaker(y, pod)
	y.GuestWrites(vm)

	// The container crashes under the guest, which waits and continues.
	killServer(y, pod.Status.PodIP)
	area := fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset, fixture.WriteLength, fixture.WriteSeed)
	y.TypeLine(vm, "verify "+area)
	y.GuestSaysAgain(vm, "berth-guest: verify "+area+": ", 2)

	// The instance goes, the disk stays.
	if err := y.Kube.Delete(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	another(y, vm, i.UID)
	y.GuestSays(vm, "berth-guest: ready")
	y.TypeLine(vm, "verify "+area)
	y.GuestSays(vm, "berth-guest: verify "+area+": ")
	if now := y.MakerPod(t.Context(), vm, "root"); now == nil || now.UID != pod.UID {
		t.Errorf("another pod makes the volume now: %+v", now)
	}

	// The pod goes: the next one has another address, and a machine that starts after that finds the disk there.
	i = y.InstanceOf(t.Context(), vm)
	if err := y.Kube.Delete(t.Context(), pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	y.Wait("another pod to say where the disk is", fixture.Patience, func(ctx context.Context) (bool, string) {
		c := y.MadeOf(ctx, vm, "root")
		return c.Spec.Source != nil && c.Spec.AnsweredBy != pod.UID, c.Status.Message
	})
	if err := y.Kube.Delete(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	another(y, vm, i.UID)
	y.GuestSays(vm, "berth-guest: ready")
	y.TypeLine(vm, "verify "+area)
	y.GuestSays(vm, "berth-guest: verify "+area+": ")

	// The machine goes, and with it the disk, the pod, the keys and the record.
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	goneWithItsVolume(y, vm, "root")
	if files := y.Run(framework.Pod{Name: "look", Claims: []string{"luns"}, Script: "ls /luns"}); strings.Contains(files, ".img") {
		t.Errorf("the container has not deleted what it made: %s", files)
	}
}

// restrictedMaker: the container's pod is an ordinary one, without a token.
func restrictedMaker(y *fixture.Machines, p *corev1.Pod) {
	y.T.Helper()
	c := p.Spec.Containers[0]
	if *p.Spec.AutomountServiceAccountToken || !*p.Spec.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation || len(c.SecurityContext.Capabilities.Add) > 0 {
		y.T.Errorf("the pod is more than an ordinary one: %+v", p.Spec)
	}
}

// killServer ends the tgtd that listens at the address, as a crash does.
func killServer(y *fixture.Machines, address string) {
	y.T.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	killed := 0
	for _, f := range files {
		text, _ := os.ReadFile(f) // it may have ended
		if !bytes.HasPrefix(text, []byte("tgtd\x00")) || !bytes.Contains(text, []byte("portal="+address+":")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			y.T.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			y.T.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		y.T.Fatalf("%d servers at %s", killed, address)
	}
}

// another waits until another instance of the machine runs.
func another(y *fixture.Machines, vm *kubevirt.VirtualMachine, than types.UID) {
	y.T.Helper()
	y.Wait("another instance to run", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		if i == nil {
			return false, "there is none"
		}
		return i.UID != than && i.Status.Phase == kubevirt.PhaseRunning, string(i.Status.Phase) + " " + i.Status.Reason
	})
}

// goneWithItsVolume waits until nothing is left of the machine.
func goneWithItsVolume(y *fixture.Machines, vm *kubevirt.VirtualMachine, volume string) {
	y.T.Helper()
	name := types.NamespacedName{Namespace: y.Namespace, Name: render.MakerName(vm.Name, vm.UID, volume)}
	y.Wait("the machine and its volume to go", fixture.Patience, func(ctx context.Context) (bool, string) {
		seen := ""
		for _, o := range []struct {
			name types.NamespacedName
			kind client.Object
		}{
			{client.ObjectKeyFromObject(vm), &kubevirt.VirtualMachine{}}, {name, &accessv1.ContainerVolume{}}, {name, &corev1.Pod{}}, {name, &corev1.Secret{}},
		} {
			if err := y.Kube.Get(ctx, o.name, o.kind); !apierrors.IsNotFound(err) {
				seen += fmt.Sprintf("%T ", o.kind)
			}
		}
		if c := y.MadeOf(ctx, vm, volume); c != nil {
			seen += c.Status.Message
		}
		return seen == "", seen
	})
}

// TestContainerVolumeClaim applies the example: a container makes a claim with its ServiceAccount, the guest has it, and it goes when the
// volume leaves the machine's spec and the guest has stopped.
func TestContainerVolumeClaim(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Apply(fixture.Example(t, "container-volume/claim.yaml", "command: [/usr/bin/claim]", "command: [/usr/bin/claim, -class, localdisk]"))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "claimed"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "serial=data")
	made := y.MadeOf(t.Context(), vm, "data")
	if made.Spec.Source.PVC == nil {
		t.Fatalf("the container made something else: %+v", made.Spec.Source)
	}
	claim := types.NamespacedName{Namespace: y.Namespace, Name: made.Spec.Source.PVC.ClaimName}
	if err := y.Kube.Get(t.Context(), claim, &corev1.PersistentVolumeClaim{}); err != nil {
		t.Fatal(err)
	}

	// The volume leaves the machine: it stays as long as the guest that has it runs.
	next := vm.DeepCopy()
	spec := &next.Spec.Template.Spec
	spec.Volumes, spec.Domain.Devices.Disks = spec.Volumes[:1], spec.Domain.Devices.Disks[:1]
	if err := y.Kube.Patch(t.Context(), next, client.MergeFrom(vm)); err != nil {
		t.Fatal(err)
	}
	y.Wait("the volume to wait for the guest", fixture.Patience, func(ctx context.Context) (bool, string) {
		c := y.MadeOf(ctx, vm, "data")
		return c.Status.Reason == "VolumeInUse", c.Status.Reason + " " + c.Status.Message
	})
	y.Stays("the claim is there", 5*time.Second, func(ctx context.Context) (bool, string) {
		c := &corev1.PersistentVolumeClaim{}
		err := y.Kube.Get(ctx, claim, c)
		return err == nil && c.DeletionTimestamp == nil, fmt.Sprint(err)
	})
	if err := y.Kube.Delete(t.Context(), y.InstanceOf(t.Context(), vm)); err != nil {
		t.Fatal(err)
	}
	y.Wait("the claim and its record to go", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, claim, &corev1.PersistentVolumeClaim{})
		c := y.MadeOf(ctx, vm, "data")
		if c != nil {
			return false, c.Status.Message
		}
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if len(vm.Finalizers) != 0 {
		t.Errorf("a machine without such a volume is kept: %v", vm.Finalizers)
	}
}

// TestContainerVolumeRefused: an answer that names a forbidden server is a reason on the machine, and a mended container is asked again; a
// container that cannot be run any more does not keep its machine in silence, and lets it go when its owner says so.
func TestContainerVolumeRefused(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Apply(fixture.ContainerVolumeYAML("refused", `                  imagePullPolicy: IfNotPresent
                  command: [/usr/bin/iscsi, -address, 127.0.0.1, -dir, /tmp]
                  size: 16Mi`))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "refused"}}
	y.WaitReason(vm, "VolumeRefused", "127.0.0.1 is a loopback address")
	if y.InstanceOf(t.Context(), vm) != nil {
		t.Error("it has an instance")
	}
	next := vm.DeepCopy()
	next.Spec.Template.Spec.Domain.Devices.Disks[0].Source.Container.Image = "berth.dev/lost:dev"
	if err := y.Kube.Patch(t.Context(), next, client.MergeFrom(vm)); err != nil {
		t.Fatal(err)
	}
	y.WaitReason(vm, "VolumeContainerStarting", "berth.dev/lost:dev")
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.WaitReason(vm, "VolumeNotDeleted", "berth.dev/abandon-volumes")
	next = vm.DeepCopy()
	next.Annotations = map[string]string{"berth.dev/abandon-volumes": "root"}
	if err := y.Kube.Patch(t.Context(), next, client.MergeFrom(vm)); err != nil {
		t.Fatal(err)
	}
	goneWithItsVolume(y, vm, "root")
}

// TestContainerVolumeNamespace applies the example: a namespace that is deleted with a running machine in it goes, and the container is asked to delete the volume
// before its pod ends, although both are deleted in the same moment.
func TestContainerVolumeNamespace(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Apply(fixture.Example(t, "container-volume/iscsi.yaml", "resources: {requests: {storage: 2Gi}}", "resources: {requests: {storage: 2Gi}}\n  storageClassName: localdisk",
		"guest: 512Mi", "guest: 64Mi"))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "dynamic"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	logs, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(y.MakerPod(t.Context(), vm, "root").Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(logs) // ends with the container
		said <- string(text)
	}()
	if err := y.Client.CoreV1().Namespaces().Delete(t.Context(), y.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	y.Wait("the namespace to go", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		ns := &corev1.Namespace{}
		if err := y.Kube.Get(ctx, types.NamespacedName{Name: y.Namespace}, ns); err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		text := ""
		for _, c := range ns.Status.Conditions {
			text += c.Message + " "
		}
		return false, text
	})
	if text := <-said; !strings.Contains(text, fmt.Sprintf("%q %q/%q %q: %q <nil>", "DELETE", y.Namespace, "dynamic", "root", "")) {
		t.Errorf("the container was not asked to delete its volume:\n%s", text)
	}
}
