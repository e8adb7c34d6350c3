//go:build e2e

package move

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

// TestSharedCopiesMove: copies in claims that all nodes can have at once are opened at both ends of a move and not sent: an overlay, and a clone. Their claims are
// the same after two moves, and gone with the machine.
func TestSharedCopiesMove(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	usage := y.SharedMedium("shared", 2)
	image := kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}
	room := new(resource.MustParse("512Mi"))
	vm := y.MovableMachine("copies",
		kubevirt.Volume{Name: "overlay", VolumeSource: image, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: usage, Capacity: room}},
		kubevirt.Volume{Name: "clone", VolumeSource: image, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyClone, UsageType: usage, Capacity: room}})
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	canMove(y, vm)
	disks, first := []string{"overlay", "clone"}, y.CopyClaims()
	y.RunPattern(vm, "write", 1, disks...)
	rest := fmt.Sprintf("sha256 serial=overlay %d %d", 8<<20, 16<<20)
	before := y.AnswerTo(vm, rest)
	for n, name := range []string{"there", "back"} {
		moves(y, vm, name)
		y.RunPattern(vm, "verify", 1+n, disks...)
		y.RunPattern(vm, "write", 2+n, disks...)
		if after := y.AnswerTo(vm, rest); after != before {
			t.Errorf("after %s the overlay shows %s where it showed %s", name, after, before)
		}
	}
	for i, c := range y.CopyClaims() {
		if len(first) != 2 || c.UID != first[i].UID || c.DeletionTimestamp != nil || !slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany) {
			t.Errorf("the copies were in %+v, and are in %+v", first, c)
		}
	}
	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	y.CopiesGone(nil)
}

// canMove waits until the machine says that it can be moved.
func canMove(y *fixture.Machines, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	y.Wait(vm.Name+" to be one that can move", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return slices.ContainsFunc(i.Status.Conditions, func(c kubevirt.Condition) bool {
			return c.Type == "LiveMigratable" && c.Status == corev1.ConditionTrue
		}), fmt.Sprintf("%+v", i.Status.Conditions)
	})
}

// TestCopiesMove: copies that have all of their masters go to another node and back with their guest: a clone of an image, in a claim of a usage
// type; a clone of a claim, which stays on its node; and a copy on read of a disk at a server that has been stopped since. What the guest wrote to them is there.
func TestCopiesMove(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	s, err := netserver.StartNBD(y.HostAddress(), fixture.ServerDir("nbd-moves"), false)
	if err != nil {
		t.Fatal(err)
	}
	framework.AtEnd(s.Close)
	export, _, err := s.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.CreateBlankVolume("golden", "localdisk")
	usage := y.OfferMediumWith("fast", "", "ext4")
	copied := func(name string, c kubevirt.DiskCopy, of kubevirt.VolumeSource) kubevirt.Volume {
		return kubevirt.Volume{Name: name, Copy: &c, VolumeSource: of}
	}
	vm := y.MovableMachine("copies",
		copied("image", kubevirt.DiskCopy{Mode: kubevirt.CopyClone, UsageType: usage, Capacity: new(resource.MustParse("512Mi"))}, kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{
			Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}),
		copied("golden", kubevirt.DiskCopy{Mode: kubevirt.CopyClone}, kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "golden"}}),
		copied("server", kubevirt.DiskCopy{Mode: kubevirt.CopyOnRead}, kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: s.Address, Port: new(intstr.FromInt(s.Port))}, Export: export}}}))
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	canMove(y, vm) // so they have all of their masters
	s.Stop()
	master := y.WaitBound("golden").Name
	disks := []string{"image", "golden", "server"}
	y.RunPattern(vm, "write", 1, disks...)
	rest := fmt.Sprintf("sha256 serial=server %d %d", 8<<20, 16<<20)
	before := y.AnswerTo(vm, rest)
	for n, name := range []string{"there", "back"} {
		moves(y, vm, name)
		y.RunPattern(vm, "verify", 1+n, disks...)
		y.RunPattern(vm, "write", 2+n, disks...)
		if after := y.AnswerTo(vm, rest); after != before {
			t.Errorf("after %s its copy on read has %s where its master had %s", name, after, before)
		}
		if c := y.CopyClaims(); len(c) != 1 || *c[0].Spec.StorageClassName != usage {
			t.Errorf("after %s the copies are in claims %+v", name, c)
		}
	}
	if now := y.WaitBound("golden").Name; now != master {
		t.Errorf("the master is in volume %s and was in %s", now, master)
	}
}
