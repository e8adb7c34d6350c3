package launcher

import (
	"github.com/berth-vm/berth/internal/launcher/early"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// startEarly looks after the disks that a worker still fills, until the guest ends.
func (l *Launcher) startEarly(qemu *qmp.Monitor, p *guest.Pauser, ended <-chan struct{}) {
	e := early.New(qemu, l.Log, l.disks)
	e.Hold, e.Said, e.Busy = p.Hold, &l.condemned, l.moves.Busy
	if all := e.Volumes(); len(all) > 0 {
		l.early.Store(&all)
		go e.Run(ended)
	}
}

// earlyText returns why a disk will not be completed, if one will not be, and otherwise what the guest waits for.
func (l *Launcher) earlyText(w waitsFor) waitsFor {
	if text := l.condemned.Load(); text != nil && *text != "" {
		return waitsFor{text: *text, cause: launcherapi.DiskCondemned}
	}
	return w
}
