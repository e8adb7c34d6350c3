//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestCopyOfOtherMasters: one machine has copies of the masters that TestCopy does not have: what a container made, from which it boots, an image of
// Ceph, a file of Gluster, and a claim that is opened without a mount. The guest reads what each has and writes to its copy, and each is what it was.
func TestCopyOfOtherMasters(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.Create(framework.Claim{Name: "luns", Class: "localdisk", Size: "1Gi"})
	c, g := y.ceph(), y.gluster()
	image, err := c.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	name, brick, err := g.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	y.secret("ceph", map[string]string{"key": c.Key})
	l := y.lun("", "")
	y.consent(y.staticClaim("direct", y.iscsiVolume(l, nil), corev1.ReadWriteOnce))
	disk := func(name, mode, source string) string {
		return fmt.Sprintf("\n            - {name: %[1]s, serial: %[1]s, copy: {mode: %[2]s}, source: {%[3]s}}", name, mode, source)
	}
	y.apply(seedContainer("others", y.iscsiMaker("")+"\n              copy: {mode: copy-on-write}"+
		disk("rados", "copy-on-read", fmt.Sprintf("rbd: {monitors: [%q], pool: %s, image: %s, user: %s, secretRef: {name: ceph}}", c.Monitor, c.Pool, image, c.User))+
		disk("brick", "clone", fmt.Sprintf("gluster: {hosts: [{name: %q}], volume: %s, path: %s}", g.Address, g.Volume, name))+
		disk("claim", "copy-on-write", "pvc: {claimname: direct}")))
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "others"}}
	y.status(vm, kubevirt.StatusRunning, boot)
	y.guestSays(vm, "berth-guest: ready")
	for _, serial := range []string{"root", "rados", "brick", "claim"} {
		const offset, length = 1 << 20, 8 << 20
		line := fmt.Sprintf("sha256 serial=%s %d %d", serial, offset, length)
		y.typeLine(vm, line)
		y.guestSays(vm, "berth-guest: "+line+": "+y.fileSum(guestDir+"/"+testguest.Raw, offset, length))
		area := fmt.Sprintf("serial=%s %d %d %d", serial, testguest.DataOffset, writeLength, writeSeed)
		for _, verb := range []string{"write ", "verify "} {
			y.typeLine(vm, verb+area)
			y.guestSays(vm, "berth-guest: "+verb+area+": ")
		}
	}
	for _, v := range y.instance(t.Context(), vm).Status.VolumeStatus {
		if v.Copy == nil {
			t.Errorf("the guest has no copy of volume %s", v.Name)
		}
	}
	exported := filepath.Join(t.TempDir(), "exported")
	if err := c.Export(image, exported); err != nil {
		t.Fatal(err)
	}
	want := y.fileSum(guestDir+"/"+testguest.Raw, 0, testguest.DiskSize)
	for what, file := range map[string]string{"Ceph": exported, "Gluster": brick, "the claim": l.File} {
		if got := y.fileSum(file, 0, testguest.DiskSize); got != want {
			t.Errorf("the master at %s was changed", what)
		}
	}
	made := y.Run(framework.Pod{Name: "look", Claims: []string{"luns"}, Script: fmt.Sprintf("for f in /luns/*.img; do head -c %d $f | sha256sum; done", testguest.DiskSize)})
	if fields := strings.Fields(made); len(fields) != 2 || fields[0] != want {
		t.Errorf("what the container made was changed: %s", made)
	}
}

// copiesOutage: machines that are deleted while their node is away leave nothing of their copies there when it is back, neither in a claim nor in
// a directory.
func (y *yard) copiesOutage(node string) outage {
	inClaim := y.copied("copy-in-claim", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: y.offer("outage", node), Capacity: new(resource.MustParse("64Mi"))})
	inDirectory := y.copied("copy-in-directory", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: new(resource.MustParse("64Mi"))})
	inDirectory.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	machines := []*kubevirt.VirtualMachine{inClaim, inDirectory}
	var volumes, dirs []string
	return outage{
		before: func(t *testing.T) {
			y := y.under(t)
			for _, vm := range machines {
				y.create(vm)
			}
			for _, vm := range machines {
				y.status(vm, kubevirt.StatusRunning, boot)
				_, launchers := y.pods(y.Context(), vm)
				dirs = append(dirs, "/pods/"+string(launchers[0].UID)+"/volumes")
			}
			for _, c := range y.copyClaims() {
				volumes = append(volumes, c.Spec.VolumeName)
			}
			if out := y.onNode(node, "copies-before", "ls -d "+strings.Join(dirs, " ")+" | wc -l"); strings.TrimSpace(out) != "2" || len(volumes) != 1 {
				t.Errorf("%s directories of pods, and claims of copies with volumes %v", out, volumes)
			}
		},
		away: func(t *testing.T) {
			y := y.under(t)
			for _, vm := range machines {
				y.status(vm, kubevirt.StatusUnknown, boot)
				if err := y.kube.Delete(y.Context(), vm); err != nil {
					t.Fatal(err)
				}
			}
		},
		out: func(t *testing.T) {
			y := y.under(t)
			y.Wait("the machines to be gone", 3*boot, func(ctx context.Context) (bool, string) {
				for _, vm := range machines {
					if i := y.instance(ctx, vm); i != nil {
						return false, "instance " + vm.Name + ": " + i.Status.Reason
					}
				}
				return true, ""
			})
		},
		back: func(t *testing.T) {
			y := y.under(t)
			y.copiesGone(volumes)
			script := "for n in $(seq 120); do ls -d " + strings.Join(dirs, " ") + " 2>/dev/null || exit 0; sleep 1; done"
			if out := y.onNode(node, "copies-after", script+"; echo left"); strings.Contains(out, "left") {
				t.Errorf("left on the node: %s", out)
			}
		},
	}
}

// onNode runs a script on a node with the kubelet's directories of pods at /pods.
func (y *yard) onNode(node, name, script string) string {
	y.T.Helper()
	return y.Run(framework.Pod{Name: name, Node: node, Script: script, Change: func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "pods", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/pods"}}}}
		main := &p.Spec.Containers[0]
		main.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		main.VolumeMounts = []corev1.VolumeMount{{Name: "pods", MountPath: "/pods"}}
	}})
}
