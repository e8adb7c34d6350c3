//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// tiny is a machine whose blank disks, one a class, are named NAME-0, NAME-1 and so on. It has nothing to boot, so it costs
// no more than its firmware; that it runs is all that is asked of it.
func (y *yard) tiny(name string, classes ...string) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name},
		Spec: kubevirt.VirtualMachineSpec{RunStrategy: new(kubevirt.RunAlways),
			Template: &kubevirt.VirtualMachineInstanceTemplateSpec{}},
	}
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(0)) // there is nobody to press the power button for
	spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("32Mi"))}
	spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	for i, class := range classes {
		disk := fmt.Sprintf("%s-%d", name, i)
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, kubevirt.DataVolumeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: disk}, Spec: blank(class)})
		spec.Volumes = append(spec.Volumes, kubevirt.Volume{Name: disk,
			VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: disk}}})
	}
	return vm
}

func blank(class string) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
		Storage: &cdiv1.StorageSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}}},
	}
}

// bootKernel makes a machine boot the test guest's kernel, which runs these commands.
func bootKernel(vm *kubevirt.VirtualMachine, commands string) {
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(20))
	spec.Domain.Memory.Guest = new(resource.MustParse("192Mi"))
	spec.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{
		KernelArgs: fmt.Sprintf("console=ttyS0 quiet panic=1 no_timer_check cryptomgr.notests=1 lsm=capability berth.run=%q", commands),
		Container: &kubevirt.KernelBootContainer{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent,
			KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd"},
	}}
}

// typeLine types a line at the guest's console.
func (y *yard) typeLine(vm *kubevirt.VirtualMachine, line string) {
	y.T.Helper()
	_, launchers := y.pods(y.Context(), vm)
	if len(launchers) != 1 {
		y.T.Fatalf("machine %s has %d launchers", vm.Name, len(launchers))
	}
	ctx, cancel := context.WithTimeout(y.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(y.T), "-n", y.Namespace,
		"exec", "-i", launchers[0].Name, "-c", "compute", "--", "/usr/bin/launcher", "console")
	in, err := cmd.StdinPipe()
	if err != nil {
		y.T.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		y.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		y.T.Fatal(err)
	}
	_, err = io.WriteString(in, line+"\n")
	if err != nil {
		y.T.Fatal(err)
	}
	// The guest echoes what it is sent: with its first byte, the line has arrived.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		y.T.Fatalf("the console says nothing to %q: %v", line, err)
	}
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // it ends with its input
}

// instance is the machine's instance; nil if there is none.
func (y *yard) instance(ctx context.Context, vm *kubevirt.VirtualMachine) *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{}
	if err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), i); err != nil {
		return nil
	}
	return i
}

// ask adds requests to the machine as the aggregated API does.
func (y *yard) ask(vm *kubevirt.VirtualMachine, change func(*kubevirt.VirtualMachineStatus)) {
	y.T.Helper()
	y.Wait("the request to be written", patience, func(ctx context.Context) (bool, string) {
		if err := y.kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err.Error()
		}
		next := vm.DeepCopy()
		change(&next.Status)
		err := y.kube.Status().Patch(ctx, next, client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}

// nothingLeft waits until of all machines in the namespace nothing is left.
func (y *yard) nothingLeft() {
	y.T.Helper()
	lists := []client.ObjectList{&kubevirt.VirtualMachineList{}, &kubevirt.VirtualMachineInstanceList{}, &cdiv1.DataVolumeList{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PodList{}}
	y.Wait("nothing to be left", boot, func(ctx context.Context) (bool, string) {
		left := ""
		for _, l := range lists {
			if err := y.kube.List(ctx, l, client.InNamespace(y.Namespace)); err != nil {
				return false, err.Error()
			}
			if n := lengthOf(l); n > 0 {
				left += fmt.Sprintf(" %d in %T", n, l)
			}
		}
		return left == "", left
	})
}

func lengthOf(l client.ObjectList) int {
	switch l := l.(type) {
	case *kubevirt.VirtualMachineList:
		return len(l.Items)
	case *kubevirt.VirtualMachineInstanceList:
		return len(l.Items)
	case *cdiv1.DataVolumeList:
		return len(l.Items)
	case *corev1.PersistentVolumeClaimList:
		return len(l.Items)
	case *corev1.PodList:
		return len(l.Items)
	}
	return -1
}
