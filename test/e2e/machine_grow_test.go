//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestDisksGrowWithTheirClaims: when the claims of a running machine grow, its guest sees larger disks: in a filesystem, on a device, and
// those that were added to it. One that grew while the machine was stopped is larger at its start.
func TestDisksGrowWithTheirClaims(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	class := y.offerOn("grows", y.ReadyNodes()[0], "xfs") // ext4 grows while it is mounted only where the driver may say so to the kernel
	vm := y.tiny("grows", class, class)
	bootKernel(vm, "disks")
	small, block := resource.MustParse("320Mi"), corev1.PersistentVolumeBlock
	for n, mode := range []*corev1.PersistentVolumeMode{nil, &block} {
		s := vm.Spec.DataVolumeTemplates[n].Spec.Storage
		s.VolumeMode, s.Resources.Requests[corev1.ResourceStorage] = mode, small
		name := vm.Spec.Template.Spec.Volumes[n].Name
		vm.Spec.Template.Spec.Domain.Devices.Disks = append(vm.Spec.Template.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: name, Serial: name})
	}
	y.create(vm)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")

	extra := blank(class)
	extra.Storage.Resources.Requests[corev1.ResourceStorage] = small
	if err := y.kube.Create(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "extra"}, Spec: extra}); err != nil {
		t.Fatal(err)
	}
	y.ask(vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: added("extra", kubevirt.BusVirtio)}}
	})
	y.plugged(vm, "extra")

	large := resource.MustParse("640Mi")
	for claim, least := range map[string]int64{"grows-0": 560 << 20, "grows-1": 640 << 20, "extra": 560 << 20} {
		y.growClaim(claim, large)
		y.guestSees(vm, claim, least)
	}
	newTool(t, y.Env).must("stop", vm.Name)
	y.status(vm, kubevirt.StatusStopped, boot)
	larger := resource.MustParse("800Mi")
	for claim := range map[string]bool{"grows-0": true, "grows-1": true} {
		y.askToGrow(claim, larger)
	}
	newTool(t, y.Env).must("start", vm.Name)
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	y.guestSees(vm, "grows-0", 700<<20)
	y.guestSees(vm, "grows-1", 800<<20)
}

// askToGrow asks for a larger claim.
func (y *yard) askToGrow(claim string, size resource.Quantity) {
	y.T.Helper()
	y.Wait("claim "+claim+" to be changed", patience, func(ctx context.Context) (bool, string) {
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		c.Spec.Resources.Requests[corev1.ResourceStorage] = size
		_, err = y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Update(ctx, c, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// growClaim has a claim grow and waits until it has.
func (y *yard) growClaim(claim string, size resource.Quantity) {
	y.T.Helper()
	y.askToGrow(claim, size)
	y.Wait("claim "+claim+" to grow", boot, func(ctx context.Context) (bool, string) {
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		has := c.Status.Capacity[corev1.ResourceStorage]
		return has.Cmp(size) >= 0, fmt.Sprintf("%s %+v", has.String(), c.Status.Conditions)
	})
}

// guestSees waits until the guest has a disk with the serial number that is at least that large.
func (y *yard) guestSees(vm *kubevirt.VirtualMachine, serial string, least int64) {
	y.T.Helper()
	said := regexp.MustCompile(`serial=` + regexp.QuoteMeta(serial) + ` size=(\d+)`)
	y.Wait("the guest to see disk "+serial+" grow", boot, func(ctx context.Context) (bool, string) {
		y.typeLine(vm, "disks")
		_, launchers := y.pods(ctx, vm)
		log, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return false, err.Error()
		}
		defer log.Close()
		text, err := io.ReadAll(log)
		all := said.FindAllSubmatch(text, -1)
		if err != nil || len(all) == 0 {
			return false, fmt.Sprintf("%v: %d bytes", err, len(text))
		}
		size, err := strconv.ParseInt(string(all[len(all)-1][1]), 10, 64)
		return err == nil && size >= least, fmt.Sprintf("%d bytes, not %d", size, least)
	})
}
