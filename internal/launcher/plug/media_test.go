package plug

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// TestMediumIsExchanged: the medium that a drive was started with is ejected before another gets in, the guest is not asked for the drive, and
// the first can come back. A tray that the guest has locked is said.
func TestMediumIsExchanged(t *testing.T) {
	qemu, told := fakeQEMU(t, "")
	domain := &fakeDomain{refuse: errors.New("the tray is locked")}
	p := plugsTo(t, qemu, domain)
	var said atomic.Pointer[launcherapi.Returns]
	p.returns, p.drives, p.offer = &said, map[string]bool{"cd": true}, map[string]handover.Disk{}
	p.own = func(string) (kubevirt.Disk, handover.Disk, error) {
		o := diskOffer(t)
		o.ReadOnly, o.Reader = true, nil
		return cdDrive("cd"), o, nil
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	offered := diskOffer(t)
	offered.Offer = rendezvous.Offer{Volume: "cd", ReadOnly: true}
	offered.Reader, offered.Holder = nil, &net.UnixConn{}
	p.offer["cd"] = offered
	other := launcherapi.Disks{Removed: []string{"cd"}, Added: []kubevirt.Disk{cdDrive("cd")}}
	p.follow(other, now)
	p.follow(other, now.Add(again))
	if got := said.Load(); len(got.Given) > 0 || got.Kept["cd"] == "" {
		t.Errorf("of a locked tray it says %+v", got)
	}
	domain.refuse = nil
	p.follow(other, now.Add(2*again))
	p.follow(other, now.Add(2*again))
	if got := said.Load(); !cmp.Equal(got.Given, []string{"cd"}) || !cmp.Equal(got.Has, []string{"cd"}) {
		t.Errorf("with another medium it says %+v", got)
	}
	p.follow(launcherapi.Disks{}, now.Add(4*again))
	p.follow(launcherapi.Disks{}, now.Add(6*again))
	want := []string{"cd ejected", "cd ejected", "cd ejected", "cd 65537 inserted", "cd ejected", "cd 65538 inserted"}
	if diff := cmp.Diff(want, domain.disks); diff != "" {
		t.Errorf("libvirt was told (-want +got):\n%s", diff)
	}
	for _, line := range told() {
		if line == `device_del {"id":"ua-cd"}` {
			t.Error("the guest was asked for its drive")
		}
	}
}

func cdDrive(name string) kubevirt.Disk {
	return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}}}
}

// TestDiskIsExchanged: a disk that was added under the name of one that the guest was started with waits until that is given back, and is
// asked for by itself.
func TestDiskIsExchanged(t *testing.T) {
	qemu, _ := fakeQEMU(t, "")
	domain := &fakeDomain{}
	p := plugsTo(t, qemu, domain)
	var said atomic.Pointer[launcherapi.Returns]
	p.returns = &said
	offered := diskOffer(t)
	offered.Volume, offered.Holder = "data", &net.UnixConn{}
	p.offer = map[string]handover.Disk{"data": offered}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	other := launcherapi.Disks{Removed: []string{"data"}, Added: []kubevirt.Disk{{Name: "data"}}}
	p.follow(other, now)
	if len(domain.disks) > 0 {
		t.Errorf("the guest got %v before it gave the first back", domain.disks)
	}
	p.gone("ua-data")
	p.follow(other, now)
	if got := said.Load(); !cmp.Equal(got.Given, []string{"data"}) || !cmp.Equal(got.Has, []string{"data"}) || len(domain.disks) != 1 {
		t.Errorf("with the other disk it says %+v, %v", got, domain.disks)
	}
	p.follow(launcherapi.Disks{Removed: []string{"data"}}, now)
	p.gone("ua-data")
	p.follow(launcherapi.Disks{Removed: []string{"data"}}, now)
	if got := said.Load(); !cmp.Equal(got.Given, []string{"data"}) || len(got.Has) > 0 {
		t.Errorf("after both were removed it says %+v", got)
	}
}
