package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/disks"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// takeBack asks the guest for the disks that it is to have no longer. The orders name those that it was started with; a disk that was added
// since may have the same name.
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
			ask(volume, qmp.Device(volume), true) // libvirt sees it go and forgets it
		}
		if plug := p.has[volume]; p.given[volume] != nil && (plug == nil || plug.holder != nil) {
			said.Given = append(said.Given, volume)
		}
	}
}

// regret gives the guest again what it was started with, has given back, and is to have after all. The disk is still in this
// pod; nobody holds it for us.
func (p *plugs) regret(removed []string, now time.Time) {
	for volume, q := range p.given {
		if slices.Contains(removed, volume) || p.has[volume] != nil || now.Sub(q.last) < again {
			continue
		}
		q.last = now
		made, err := p.plugOwn(volume)
		if err != nil {
			p.log.Error("the guest cannot have a disk again", "volume", volume, "error", err.Error())
			continue
		}
		p.has[volume] = made
		p.log.Info("the guest was given a disk again", "volume", volume)
		delete(p.given, volume)
	}
}

// plugOwn gives the guest a disk again that it was started with.
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
	defer o.closeFiles()
	return p.plug(disk, o)
}

// ownDisk is a disk the machine was started with, opened once more.
func ownDisk(m launcherapi.Machine, volume string) (kubevirt.Disk, offer, error) {
	at := slices.IndexFunc(domain.Disks(m.Spec), func(d kubevirt.Disk) bool { return d.Name == volume })
	if at < 0 {
		return kubevirt.Disk{}, offer{}, fmt.Errorf("the machine was not started with disk %q", volume)
	}
	disk := domain.Disks(m.Spec)[at]
	copied := func(v kubevirt.Volume) bool { return v.Name == volume && v.Copied() != nil }
	if slices.ContainsFunc(m.Spec.Volumes, copied) {
		return disk, offer{}, errors.New("a copy is made when the machine starts; it is there again after a restart")
	}
	b, err := disks.Claim(m, volume)
	if err != nil {
		return disk, offer{}, err
	}
	o := offer{Offer: rendezvous.Offer{Volume: volume, Device: b.Device, ReadOnly: disk.ReadsOnly()}}
	if o.file, err = os.Open(b.Path); err != nil || o.ReadOnly {
		return disk, o, err
	}
	o.reader = o.file
	if o.file, err = os.OpenFile(b.Path, os.O_RDWR, 0); err != nil {
		_ = o.reader.Close()
	}
	return disk, o, err
}

// eject asks the guest for a device back, and again after a while. Its word comes as an event.
func (p *plugs) eject(volume, id string, own bool, now time.Time) {
	q := p.asked[id]
	if q == nil {
		q = &plea{volume: volume, own: own, first: now}
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
		p.log.Warn("the guest keeps a disk", "device", id, "error", err.Error())
	}
}

// gone notes that the guest has given a device up.
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

// settle lets go of what the guest has given up and nobody has open any more.
func (p *plugs) settle() {
	for volume, plug := range p.has {
		if !plug.leaves {
			continue
		}
		closed, err := p.closed(volume, plug)
		if err != nil {
			p.log.Warn("a disk is not quite gone", "volume", volume, "error", err.Error())
		}
		if !closed {
			continue
		}
		p.log.Info("the guest gave a disk back", "volume", volume)
		plug.forget()
		if plug.holder != nil {
			_ = rendezvous.SendAnswer(plug.holder, rendezvous.Answer{Released: true})
			_ = plug.holder.Close()
		}
		delete(p.has, volume)
		delete(p.asked, plug.id)
	}
}
