//go:build e2e

package machine

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
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestDisksGrowWithTheirClaims: when the claims of a running machine grow, its guest sees larger disks: in a filesystem, on a device, and
// those that were added to it. One that grew while the machine was stopped is larger at its start.
func TestDisksGrowWithTheirClaims(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	class := y.OfferMediumWith("grows", y.ReadyNodes()[0], "xfs") // ext4 grows while it is mounted only where the driver may say so to the kernel
	vm := y.TinyMachine("grows", class, class)
	fixture.BootKernel(vm, "disks")
	small, block := resource.MustParse("320Mi"), corev1.PersistentVolumeBlock
	for n, mode := range []*corev1.PersistentVolumeMode{nil, &block} {
		s := vm.Spec.DataVolumeTemplates[n].Spec.Storage
		s.VolumeMode, s.Resources.Requests[corev1.ResourceStorage] = mode, small
		name := vm.Spec.Template.Spec.Volumes[n].Name
		vm.Spec.Template.Spec.Domain.Devices.Disks = append(vm.Spec.Template.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: name, Serial: name})
	}
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")

	extra := fixture.BlankDisk(class)
	extra.Storage.Resources.Requests[corev1.ResourceStorage] = small
	if err := y.Kube.Create(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "extra"}, Spec: extra}); err != nil {
		t.Fatal(err)
	}
	ask(y, vm, func(s *kubevirt.VirtualMachineStatus) {
		s.VolumeRequests = []kubevirt.VolumeRequest{{AddVolumeOptions: fixture.AddVolumeOptions("extra", kubevirt.BusVirtio)}}
	})
	y.WaitPlugged(vm, "extra")

	large := resource.MustParse("640Mi")
	for claim, least := range map[string]int64{"grows-0": 560 << 20, "grows-1": 640 << 20, "extra": 560 << 20} {
		growClaim(y, claim, large)
		guestSees(y, vm, claim, least)
	}
	fixture.NewVirtctl(t, y.Env).Must("stop", vm.Name)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	larger := resource.MustParse("800Mi")
	for claim := range map[string]bool{"grows-0": true, "grows-1": true} {
		askToGrow(y, claim, larger)
	}
	fixture.NewVirtctl(t, y.Env).Must("start", vm.Name)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	guestSees(y, vm, "grows-0", 700<<20)
	guestSees(y, vm, "grows-1", 800<<20)
}

// askToGrow asks for a larger claim.
func askToGrow(y *fixture.Machines, claim string, size resource.Quantity) {
	y.T.Helper()
	y.Wait("claim "+claim+" to be changed", fixture.Patience, func(ctx context.Context) (bool, string) {
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
func growClaim(y *fixture.Machines, claim string, size resource.Quantity) {
	y.T.Helper()
	askToGrow(y, claim, size)
	y.Wait("claim "+claim+" to grow", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		has := c.Status.Capacity[corev1.ResourceStorage]
		return has.Cmp(size) >= 0, fmt.Sprintf("%s %+v", has.String(), c.Status.Conditions)
	})
}

// guestSees waits until the guest has a disk with the serial number that is at least that large.
func guestSees(y *fixture.Machines, vm *kubevirt.VirtualMachine, serial string, least int64) {
	y.T.Helper()
	said := regexp.MustCompile(`serial=` + regexp.QuoteMeta(serial) + ` size=(\d+)`)
	y.Wait("the guest to see disk "+serial+" grow", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		y.TypeLine(vm, "disks")
		_, launchers := y.PodsOf(ctx, vm)
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
