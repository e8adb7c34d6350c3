//go:build e2e

package netdisk

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

// TestNetworkDiskTaken: two machines name one LUN in each pair of modes, the second by another name of its server. Those that may
// share it both run; of those that may not, one waits, says who has the disk, and runs when the other is gone.
func TestNetworkDiskTaken(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	modes := []kubevirt.AccessMode{kubevirt.WriteExclusive, kubevirt.WriteShared, kubevirt.ReadShared}
	for i, a := range modes {
		for _, b := range modes[i:] {
			t.Run(string(a)+" and "+string(b), func(t *testing.T) {
				l := y.GuestLUN("", "")
				volume := func(m kubevirt.AccessMode) kubevirt.Volume {
					return kubevirt.Volume{AccessMode: m, VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: y.ISCSISource(l)}}}
				}
				suffix := fmt.Sprintf("-%d", len(a)*100+len(b))
				first, second := y.NetworkMachine("one"+suffix, volume(a)), y.NetworkMachine("two"+suffix, volume(b))
				second.Spec.Template.Spec.Volumes[0].ISCSI.Host.Name = "host.kubebox.internal" // the same server
				y.CreateMachine(first)
				y.WaitStatus(first, kubevirt.StatusRunning, fixture.BootPatience)
				y.CreateMachine(second)
				if a == b && a != kubevirt.WriteExclusive {
					y.WaitStatus(second, kubevirt.StatusRunning, fixture.BootPatience)
				} else {
					y.Wait("the second to say who has the disk", fixture.Patience, func(ctx context.Context) (bool, string) {
						err := y.Kube.Get(ctx, client.ObjectKeyFromObject(second), second)
						return err == nil && strings.Contains(fixture.ReadyMessage(second), "machine "+first.Name+" has it "+string(a)), fixture.ReadyMessage(second)
					})
					if err := y.Kube.Delete(t.Context(), first); err != nil {
						t.Fatal(err)
					}
					y.WaitStatus(second, kubevirt.StatusRunning, fixture.BootPatience)
				}
				y.DeleteMachines()
			})
		}
	}
}

// TestNetworkDiskTwoNames: an NBD export is one disk, whatever name of its server a machine uses: the second machine waits and
// names the first.
func TestNetworkDiskTwoNames(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	s, err := netserver.StartNBD(y.HostAddress(), fixture.ServerDir("nbd-names"), false)
	if err != nil {
		t.Fatal(err)
	}
	framework.AtEnd(s.Close)
	export, _, err := s.Add(fixture.GuestDir + "/" + testguest.Raw)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name, host string) *kubevirt.VirtualMachine {
		return y.NetworkMachine(name, kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{
			Host: kubevirt.NetworkHost{Name: host, Port: new(intstr.FromInt(s.Port))}, Export: export}}}})
	}
	first, second := named("address", s.Address), named("name", "host.kubebox.internal")
	y.CreateMachine(first)
	y.WaitStatus(first, kubevirt.StatusRunning, fixture.BootPatience)
	y.CreateMachine(second)
	y.Wait("the second to say who has the disk", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(second), second)
		return err == nil && strings.Contains(fixture.ReadyMessage(second), "machine "+first.Name+" has it "+string(kubevirt.WriteExclusive)), fixture.ReadyMessage(second)
	})
	if err := y.Kube.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	y.WaitStatus(second, kubevirt.StatusRunning, fixture.BootPatience)
}
