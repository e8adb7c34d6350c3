//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestNetworkDiskTaken: two machines name one LUN in each pair of modes, the second by another name of its server. Those that may
// share it both run; of those that may not, one waits, says who has the disk, and runs when the other is gone.
func TestNetworkDiskTaken(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	modes := []kubevirt.AccessMode{kubevirt.WriteExclusive, kubevirt.WriteShared, kubevirt.ReadShared}
	for i, a := range modes {
		for _, b := range modes[i:] {
			t.Run(string(a)+" and "+string(b), func(t *testing.T) {
				l := y.lun("", "")
				volume := func(m kubevirt.AccessMode) kubevirt.Volume {
					return kubevirt.Volume{AccessMode: m, VolumeSource: kubevirt.VolumeSource{ISCSI: y.iscsiSource(l)}}
				}
				suffix := fmt.Sprintf("-%d", len(a)*100+len(b))
				first, second := y.networked("one"+suffix, volume(a)), y.networked("two"+suffix, volume(b))
				second.Spec.Template.Spec.Volumes[0].ISCSI.Host.Name = "host.kubebox.internal" // the same server
				y.create(first)
				y.status(first, kubevirt.StatusRunning, boot)
				y.create(second)
				if a == b && a != kubevirt.WriteExclusive {
					y.status(second, kubevirt.StatusRunning, boot)
				} else {
					y.Wait("the second to say who has the disk", patience, func(ctx context.Context) (bool, string) {
						err := y.kube.Get(ctx, client.ObjectKeyFromObject(second), second)
						return err == nil && strings.Contains(why(second), "machine "+first.Name+" has it "+string(a)), why(second)
					})
					if err := y.kube.Delete(t.Context(), first); err != nil {
						t.Fatal(err)
					}
					y.status(second, kubevirt.StatusRunning, boot)
				}
				y.clear()
			})
		}
	}
}
