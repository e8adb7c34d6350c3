//go:build e2e

package node

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// copiesOutage: machines that are deleted while their node is away leave nothing of their copies there when it is back, neither in a claim nor in
// a directory.
func copiesOutage(y *fixture.Machines, node string) outage {
	inClaim := y.MachineWithCopy("copy-in-claim", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, UsageType: y.OfferMedium("outage", node), Capacity: new(resource.MustParse("64Mi"))})
	inDirectory := y.MachineWithCopy("copy-in-directory", kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: new(resource.MustParse("64Mi"))})
	inDirectory.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	machines := []*kubevirt.VirtualMachine{inClaim, inDirectory}
	var volumes, dirs []string
	return outage{
		before: func(t *testing.T) {
			y := inSubtest(y, t)
			for _, vm := range machines {
				y.CreateMachine(vm)
			}
			for _, vm := range machines {
				y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
				_, launchers := y.PodsOf(y.Context(), vm)
				dirs = append(dirs, "/pods/"+string(launchers[0].UID)+"/volumes")
			}
			for _, c := range y.CopyClaims() {
				volumes = append(volumes, c.Spec.VolumeName)
			}
			if out := y.OnNode(node, "copies-before", "ls -d "+strings.Join(dirs, " ")+" | wc -l"); strings.TrimSpace(out) != "2" || len(volumes) != 1 {
				t.Errorf("%s directories of pods, and claims of copies with volumes %v", out, volumes)
			}
		},
		away: func(t *testing.T) {
			y := inSubtest(y, t)
			for _, vm := range machines {
				y.WaitStatus(vm, kubevirt.StatusUnknown, fixture.BootPatience)
				if err := y.Kube.Delete(y.Context(), vm); err != nil {
					t.Fatal(err)
				}
			}
		},
		out: func(t *testing.T) {
			y := inSubtest(y, t)
			y.Wait("the machines to be gone", 3*fixture.BootPatience, func(ctx context.Context) (bool, string) {
				for _, vm := range machines {
					if i := y.InstanceOf(ctx, vm); i != nil {
						return false, "instance " + vm.Name + ": " + i.Status.Reason
					}
				}
				return true, ""
			})
		},
		back: func(t *testing.T) {
			y := inSubtest(y, t)
			y.CopiesGone(volumes)
			script := "for n in $(seq 120); do ls -d " + strings.Join(dirs, " ") + " 2>/dev/null || exit 0; sleep 1; done"
			if out := y.OnNode(node, "copies-after", script+"; echo left"); strings.Contains(out, "left") {
				t.Errorf("left on the node: %s", out)
			}
		},
	}
}
