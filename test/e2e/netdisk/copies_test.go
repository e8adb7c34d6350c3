//go:build e2e

package netdisk

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestCopyOfOtherMasters: one machine has copies of the masters that TestCopy does not have: one that a container made, from which
// it boots, an image of Ceph, a file of Gluster, and a claim that is opened without a mount. The guest reads the content of each
// and writes to its copy, and the masters are unchanged.
func TestCopyOfOtherMasters(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Create(framework.Claim{Name: "luns", Class: "localdisk", Size: "1Gi"})
	c, g := y.CephServer(), y.GlusterServer()
	image, err := c.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	name, brick, err := g.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.ApplySecret("ceph", map[string]string{"key": c.Key})
	l := y.GuestLUN("", "")
	y.ConsentToDirect(y.CreateStaticClaim("direct", y.ISCSIVolume(l, nil), corev1.ReadWriteOnce))
	disk := func(name, mode, source string) string {
		return fmt.Sprintf("\n            - {name: %[1]s, serial: %[1]s, copy: {mode: %[2]s}, source: {%[3]s}}", name, mode, source)
	}
	y.Apply(fixture.ContainerVolumeYAML("others", y.ISCSIMakerYAML("")+"\n              copy: {mode: copy-on-write}"+
		disk("rados", "copy-on-read", fmt.Sprintf("rbd: {monitors: [%q], pool: %s, image: %s, user: %s, secretRef: {name: ceph}}", c.Monitor, c.Pool, image, c.User))+
		disk("brick", "clone", fmt.Sprintf("gluster: {hosts: [{name: %q}], volume: %s, path: %s}", g.Address, g.Volume, name))+
		disk("claim", "copy-on-write", "pvc: {claimname: direct}")))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "others"}}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	for _, serial := range []string{"root", "rados", "brick", "claim"} {
		const offset, length = 1 << 20, 8 << 20
		line := fmt.Sprintf("sha256 serial=%s %d %d", serial, offset, length)
		y.TypeLine(vm, line)
		y.GuestSays(vm, "berth-guest: "+line+": "+y.FileSum(fixture.GuestDir+"/"+testguest.Raw, offset, length))
		area := fmt.Sprintf("serial=%s %d %d %d", serial, testguest.DataOffset, fixture.WriteLength, fixture.WriteSeed)
		for _, verb := range []string{"write ", "verify "} {
			y.TypeLine(vm, verb+area)
			y.GuestSays(vm, "berth-guest: "+verb+area+": ")
		}
	}
	for _, v := range y.InstanceOf(t.Context(), vm).Status.VolumeStatus {
		if v.Copy == nil {
			t.Errorf("the guest has no copy of volume %s", v.Name)
		}
	}
	exported := filepath.Join(t.TempDir(), "exported")
	if err := c.Export(image, exported); err != nil {
		t.Fatal(err)
	}
	want := y.FileSum(fixture.GuestDir+"/"+testguest.Raw, 0, testguest.DiskSize)
	for what, file := range map[string]string{"Ceph": exported, "Gluster": brick, "the claim": l.File} {
		if got := y.FileSum(file, 0, testguest.DiskSize); got != want {
			t.Errorf("the master at %s was changed", what)
		}
	}
	made := y.Run(framework.Pod{Name: "look", Claims: []string{"luns"}, Script: fmt.Sprintf("for f in /luns/*.img; do head -c %d $f | sha256sum; done", testguest.DiskSize)})
	if fields := strings.Fields(made); len(fields) != 2 || fields[0] != want {
		t.Errorf("what the container made was changed: %s", made)
	}
}
