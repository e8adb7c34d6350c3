//go:build e2e

package hostile

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
	"github.com/berth-vm/berth/test/netserver"
)

// addresses are network disks of the victim that the tenant only names. The victim has them meanwhile.
var addresses = attempts{
	"a server that says to have the victim's disk": func(h *hostile) {
		genuine, fake := h.target("golden"), h.target("golden")
		squatter := h.yard(h.own).NetworkMachine("squatter", genuine.volume(fake.server.Address, fake.server.Port))
		h.make(squatter)
		h.yard(h.own).WaitStatus(squatter, kubevirt.StatusRunning, fixture.BootPatience)
		owner := h.yard(h.victim).NetworkMachine("owner", genuine.volume(genuine.server.Address, genuine.server.Port))
		h.victim.CreateObject(owner)
		h.yard(h.victim).WaitStatus(owner, kubevirt.StatusRunning, fixture.BootPatience)
	},
	"a server that does not answer": func(h *hostile) {
		genuine := h.target("silver")
		nobody, err := netserver.FreePort(genuine.server.Address)
		if err != nil {
			h.t().Fatal(err)
		}
		h.make(h.yard(h.own).NetworkMachine("caller", genuine.volume(genuine.server.Address, nobody)))
		owner := h.yard(h.victim).NetworkMachine("undisturbed", genuine.volume(genuine.server.Address, genuine.server.Port))
		h.victim.CreateObject(owner)
		h.yard(h.victim).WaitStatus(owner, kubevirt.StatusRunning, fixture.BootPatience)
	},
}

// addressed is a LUN of a server of its own.
type addressed struct {
	server *netserver.TGT
	lun    netserver.LUN
}

// target starts a server with one LUN. Two servers with the same name have one of the same name.
func (h *hostile) target(name string) addressed {
	h.t().Helper()
	s, err := netserver.StartTGT(h.own.HostAddress(), fixture.ServerDir("hostile-tgt"))
	if err != nil {
		h.t().Fatal(err)
	}
	framework.AtEnd(s.Close)
	s.Name = name
	l, err := s.Add(fixture.GuestDir+"/"+testguest.Raw, "", "")
	if err != nil {
		h.t().Fatal(err)
	}
	return addressed{s, l}
}

// volume names the LUN at a server.
func (a addressed) volume(address string, port int) kubevirt.Volume {
	return kubevirt.Volume{VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Portal: a.lun.Target, LUN: int32(a.lun.Number),
		Host: kubevirt.NetworkHost{Name: address, Port: new(intstr.FromInt(port))}}}}}
}
