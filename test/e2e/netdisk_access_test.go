//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
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

// TestNetworkDiskTwoNames: an NBD export is one disk, whatever name of its server a machine has: the second waits and says for whom.
func TestNetworkDiskTwoNames(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s, err := netserver.StartNBD(y.HostAddress(), serverDir("nbd-names"), false)
	if err != nil {
		t.Fatal(err)
	}
	framework.AtEnd(s.Close)
	export, _, err := s.Add(guestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name, host string) *kubevirt.VirtualMachine {
		return y.networked(name, kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: host, Port: new(intstr.FromInt(s.Port))}, Export: export}}})
	}
	first, second := named("address", s.Address), named("name", "host.kubebox.internal")
	y.create(first)
	y.status(first, kubevirt.StatusRunning, boot)
	y.create(second)
	y.Wait("the second to say who has the disk", patience, func(ctx context.Context) (bool, string) {
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(second), second)
		return err == nil && strings.Contains(why(second), "machine "+first.Name+" has it "+string(kubevirt.WriteExclusive)), why(second)
	})
	if err := y.kube.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	y.status(second, kubevirt.StatusRunning, boot)
}
