//go:build e2e

package copies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/images/guest/pattern"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// busyOffset is where the guest writes while its disk is being kept; every write is of busyLength bytes, in blocks of busyBlock.
const (
	busyOffset = testguest.DataOffset + 16<<20
	busyLength = 1 << 20
	busyBlock  = 4 << 10
)

// patternSum is the sha256 of a part of a seed's pattern.
func patternSum(seed uint64, offset, length int64) string {
	b := make([]byte, length)
	_, _ = pattern.Stream(seed).ReadAt(b, offset)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestCopyIsKept: while its guest writes, a machine's copy is written to a claim, in a filesystem and on a device. The claim has what the master
// has and what the guest wrote before, and of what it writes meanwhile no block that was never on the disk; a machine boots from it. A claim
// that was not made for it is left as it is.
func TestCopyIsKept(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	vm := y.NetworkMachine("kept", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{
		ContainerDisk: &kubevirt.ContainerDiskSource{Image: images.Guest, ImagePullPolicy: corev1.PullIfNotPresent}}})
	fixture.FromClaimTemplate(vm, "own", "localdisk")
	y.BootFromNetwork(vm)
	y.GuestWrites(vm)
	claimOfOthers(y, v, vm)

	written := make(chan fixture.Result, 1)
	seed := busy(y, vm, 100)
	go func() {
		written <- v.Run("vm", "keep", vm.Name, "root", "--as", "mine", "--storage-class", "localdisk", "--volume-mode", "Filesystem")
	}()
	seeds := []uint64{seed}
	var o fixture.Result
	for done := false; !done; {
		select {
		case o = <-written:
			done = true
		default:
			seeds = append(seeds, busy(y, vm, seeds[len(seeds)-1]+1))
		}
	}
	if o.Code != 0 || !strings.Contains(o.Out, "PersistentVolumeClaim mine has disk root of VM kept") {
		t.Fatalf("virtctl vm keep ended with %d: %s %s", o.Code, o.Out, o.Err)
	}
	if len(seeds) < 2 {
		t.Error("the guest wrote nothing meanwhile")
	}
	seeds = append(seeds, busy(y, vm, seeds[len(seeds)-1]+1)) // the guest's disk is its own still
	holdsDisk(y, "mine", "/mine/disk.img", seeds[:len(seeds)-1])

	fixture.HasTexts(t, v.Must("vm", "keep", vm.Name, "root", "--as", "device", "--storage-class", "localdisk", "--volume-mode", "Block"), "PersistentVolumeClaim device has disk root")
	holdsDisk(y, "device", "/dev/device", seeds[len(seeds)-1:])
	fixture.HasTexts(t, v.Must("vm", "status", vm.Name), "kept in device  Kept")

	if err := y.Kube.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	again := y.NetworkMachine("again", kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "mine"}}})
	y.BootFromNetwork(again)
	area := fmt.Sprintf("serial=root %d %d %d", testguest.DataOffset, fixture.WriteLength, fixture.WriteSeed)
	y.TypeLine(again, "verify "+area)
	y.GuestSays(again, "berth-guest: verify "+area+": same")
}

// busy has the guest write the busy area again, and waits until its disk has it.
func busy(y *fixture.Machines, vm *kubevirt.VirtualMachine, seed uint64) uint64 {
	y.T.Helper()
	line := fmt.Sprintf("write serial=root %d %d %d", busyOffset, busyLength, seed)
	y.TypeLine(vm, line)
	y.GuestSays(vm, "berth-guest: "+line+": ")
	return seed
}

// holdsDisk compares the disk in a claim with what it was at some moment: the seeds are those that the busy area may have.
func holdsDisk(y *fixture.Machines, claim, path string, seeds []uint64) {
	y.T.Helper()
	const quiet, length = 1 << 20, 62 << 20 // nobody writes there
	part := func(offset, length int64) string {
		return fmt.Sprintf("dd if=%s bs=4096 skip=%d count=%d 2>/dev/null", path, offset/4096, length/4096)
	}
	blocks := fmt.Sprintf("n=0; while [ $n -lt %d ]; do dd if=%s bs=%d skip=$((%d + n)) count=1 2>/dev/null | sha256sum | cut -c1-64; n=$((n + 1)); done",
		busyLength/busyBlock, path, busyBlock, busyOffset/busyBlock)
	out := strings.Fields(y.Run(framework.Pod{Name: "look", Claims: []string{claim}, Script: part(quiet, length) + " | sha256sum | cut -c1-64; " +
		part(testguest.DataOffset, fixture.WriteLength) + " | sha256sum | cut -c1-64; " + blocks}))
	if len(out) != 2+busyLength/busyBlock {
		y.T.Fatalf("%d lines about claim %s: %.200q", len(out), claim, out)
	}
	if want := y.FileSum(fixture.GuestDir+"/"+testguest.Raw, quiet, length); out[0] != want {
		y.T.Errorf("claim %s has %s where the master has %s", claim, out[0], want)
	}
	if want := patternSum(fixture.WriteSeed, 0, fixture.WriteLength); out[1] != want {
		y.T.Errorf("claim %s has %s where the guest wrote %s", claim, out[1], want)
	}
	for block, got := range out[2:] {
		known := false
		for _, seed := range seeds {
			known = known || got == patternSum(seed, int64(block)*busyBlock, busyBlock)
		}
		if !known {
			y.T.Errorf("block %d of claim %s was never on the disk", block, claim)
		}
	}
}

// claimOfOthers: a claim that was not made for the disk is neither taken by virtctl nor written to if a user names it on the instance.
func claimOfOthers(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	class := "localdisk"
	other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "other"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}}}}
	if err := y.Kube.Create(y.Context(), other); err != nil {
		y.T.Fatal(err)
	}
	if o := v.Run("vm", "keep", vm.Name, "root", "--as", "other"); o.Code == 0 || !strings.Contains(o.Err, "exists and was not made for this disk") {
		y.T.Errorf("virtctl took somebody's claim: %+v", o)
	}
	path := fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/keep", y.Namespace, vm.Name)
	err := y.Client.CoreV1().RESTClient().Put().AbsPath(path).SetHeader("Content-Type", "application/json").
		Body([]byte(`{"name":"root","claimName":"other"}`)).Do(y.Context()).Error()
	if err != nil {
		y.T.Fatal(err)
	}
	y.Wait("the instance to say that the claim is none of its own", fixture.Patience, func(ctx context.Context) (bool, string) {
		k := keepOf(y.InstanceOf(ctx, vm))
		return k.Reason == kubevirt.KeepNotForIt && strings.Contains(k.Message, "nothing is written to it"), fmt.Sprintf("%+v", k)
	})
	if c, err := y.Client.CoreV1().PersistentVolumeClaims(y.Namespace).Get(y.Context(), "other", metav1.GetOptions{}); err != nil || c.Status.Phase != corev1.ClaimPending {
		y.T.Errorf("somebody's claim has been used: %v, %v", c, err)
	}
}

// keepOf returns an instance's status of the claim that its first copy is kept in.
func keepOf(i *kubevirt.VirtualMachineInstance) kubevirt.KeepStatus {
	for _, s := range i.Status.VolumeStatus {
		if s.Copy != nil && s.Copy.Keep != nil {
			return *s.Copy.Keep
		}
	}
	return kubevirt.KeepStatus{}
}
