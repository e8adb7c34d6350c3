package plug

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/disks"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// takeBack asks the guest to release the disks that it should no longer have. The orders list those that it was started with as removed; a disk
// that was added since may have the same name.
func (p *plugs) takeBack(want launcherapi.Disks, now time.Time, said *launcherapi.Returns) {
	ask := func(volume, id string, own bool) {
		p.eject(volume, id, own, now)
		if q := p.asked[id]; q != nil && now.Sub(q.first) >= again {
			said.Kept[volume] = q.text()
		}
	}
	for volume, plug := range p.has {
		added := slices.ContainsFunc(want.Added, func(d kubevirt.Disk) bool { return d.Name == volume })
		if plug.holder != nil && !added {
			ask(volume, plug.id, false)
		}
	}
	for _, volume := range want.Removed {
		switch plug := p.has[volume]; {
		case plug != nil && plug.holder == nil:
			ask(volume, plug.id, true)
		case p.given[volume] == nil && plug == nil:
			ask(volume, qmp.Device(volume), true) // libvirt notices that the device is removed
		}
		if plug := p.has[volume]; p.given[volume] != nil && (plug == nil || plug.holder != nil) {
			said.Given = append(said.Given, volume)
		}
	}
}

// addBack adds disks again that the guest was started with and has released, if they are no longer removed in the orders. These disks are in this
// pod and have no holder.
func (p *plugs) addBack(removed []string, now time.Time) {
	for volume, q := range p.given {
		if slices.Contains(removed, volume) || p.has[volume] != nil || now.Sub(q.last) < again {
			continue
		}
		q.last = now
		made, err := p.plugOwn(volume)
		if err != nil {
			p.log.Error("a disk cannot be added to the guest again", "volume", volume, "error", err.Error())
			continue
		}
		p.has[volume] = made
		p.log.Info("a disk was added to the guest again", "volume", volume)
		delete(p.given, volume)
	}
}

// plugOwn adds a disk again that the guest was started with.
func (p *plugs) plugOwn(volume string) (*plug, error) {
	disk, b, l, ok, err := p.network.Reopen(volume)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return p.plugNetwork(disk, b, l)
	}
	disk, o, err := p.own(volume)
	if err != nil {
		return nil, err
	}
	defer o.CloseFiles()
	return p.plug(disk, o)
}

// ownDisk opens a disk again that the machine was started with.
func ownDisk(m launcherapi.Machine, volume string) (kubevirt.Disk, handover.Disk, error) {
	at := slices.IndexFunc(domain.Disks(m.Spec), func(d kubevirt.Disk) bool { return d.Name == volume })
	if at < 0 {
		return kubevirt.Disk{}, handover.Disk{}, fmt.Errorf("the machine was not started with disk %q", volume)
	}
	disk := domain.Disks(m.Spec)[at]
	copied := func(v kubevirt.Volume) bool { return v.Name == volume && v.Copied() != nil }
	if slices.ContainsFunc(m.Spec.Volumes, copied) {
		return disk, handover.Disk{}, errors.New("a copy is made when the machine starts; it is there again after a restart")
	}
	b, err := disks.Claim(m, volume)
	if err != nil {
		return disk, handover.Disk{}, err
	}
	o := handover.Disk{Offer: rendezvous.Offer{Volume: volume, Device: b.Device, ReadOnly: disk.ReadsOnly()}}
	if o.File, err = os.Open(b.Path); err != nil || o.ReadOnly {
		return disk, o, err
	}
	o.Reader = o.File
	if o.File, err = os.OpenFile(b.Path, os.O_RDWR, 0); err != nil {
		_ = o.Reader.Close()
	}
	return disk, o, err
}

// eject asks the guest to release a device, and asks again after a while. An event tells when the guest has released it.
func (p *plugs) eject(volume, id string, own bool, now time.Time) {
	q := p.asked[id]
	if q == nil {
		q = &releaseRequest{volume: volume, own: own, first: now}
		p.asked[id] = q
	}
	if now.Sub(q.last) < again {
		return
	}
	q.last, q.refused = now, ""
	var err error
	if p.drives[volume] {
		err = p.domain.medium(volume, nil)
	} else {
		_, err = p.qemu.Run("device_del", map[string]string{"id": id})
	}
	switch {
	case qmp.Missing(err), err == nil && p.drives[volume]:
		p.gone(id)
	case err != nil:
		q.refused = err.Error()
		p.log.Warn("the guest cannot be asked to release a disk", "device", id, "error", err.Error())
	}
}

// gone records that the guest has released a device.
func (p *plugs) gone(id string) {
	if q := p.asked[id]; q != nil && q.own {
		p.given[q.volume] = q
		delete(p.asked, id)
	}
	for _, plug := range p.has {
		plug.leaves = plug.leaves || plug.id == id
	}
	p.settle()
}

// settle releases the disks that the guest has released and QEMU has closed.
func (p *plugs) settle() {
	for volume, plug := range p.has {
		if !plug.leaves {
			continue
		}
		closed, err := p.closed(volume, plug)
		if err != nil {
			p.log.Warn("a disk that the guest released is not closed", "volume", volume, "error", err.Error())
		}
		if !closed {
			continue
		}
		p.log.Info("the guest released a disk", "volume", volume)
		plug.forget()
		if plug.holder != nil {
			_ = rendezvous.SendAnswer(plug.holder, rendezvous.Answer{Released: true})
			_ = plug.holder.Close()
		}
		delete(p.has, volume)
		delete(p.asked, plug.id)
	}
}
