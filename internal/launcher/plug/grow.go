package plug

import (
	"os"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// A claim can grow, and its disk grows with it. A device grows by itself, and QEMU has to be told. A file is made longer: by QEMU while the guest
// runs, and by the launcher before. No disk is ever made smaller.

const (
	growEvery = 2 * time.Second
	// growRetry is how long to wait after QEMU refused: a network disk may have another size than its claim, and a job may use the disk.
	growRetry = time.Minute
)

// growth records what the disks of a running guest can grow to.
type growth struct {
	began map[string]int64        // the sizes of claims when the machine was made, by volume
	disks map[string]backing.Disk // that it was started with
	last  time.Time
	after map[string]time.Time // volumes that QEMU refused to let grow, and when to try again
}

func newGrowth(m launcherapi.Machine, disks map[string]backing.Disk) *growth {
	return &growth{began: m.Sizes, disks: disks, after: map[string]time.Time{}}
}

// grow makes QEMU let every disk grow that can be larger. sizes are those of claims, by volume.
func (p *plugs) grow(sizes map[string]int64, now time.Time) {
	g := p.growth
	if now.Sub(g.last) < growEvery {
		return
	}
	g.last = now
	drives, err := p.qemu.Drives()
	if err != nil {
		return // QEMU is ending
	}
	for volume, d := range drives {
		if now.Before(g.after[volume]) {
			continue
		}
		size, err := p.sizeOf(volume, max(sizes[volume], g.began[volume]))
		if err == nil && size > d.Size {
			if _, err = p.qemu.Run("block_resize", map[string]any{"node-name": d.Node, "size": size}); err == nil {
				p.log.Info("a disk of the guest has grown", "volume", volume, "from", d.Size, "to", size)
			}
		}
		if err != nil {
			g.after[volume] = now.Add(growRetry)
			p.log.Warn("a disk of the guest does not grow", "volume", volume, "to", size, "error", err.Error())
		}
	}
}

// sizeOf returns the size that a disk of the guest can have; 0 if it does not change. asked is the size of its claim; a device has its own.
func (p *plugs) sizeOf(volume string, asked int64) (int64, error) {
	if plug := p.has[volume]; plug != nil {
		if plug.measure == nil {
			return asked, nil
		}
		return backing.GrownSize(plug.measure, asked)
	}
	b, ok := p.growth.disks[volume]
	switch {
	case !ok, b.Copied, b.ReadOnly, b.Early != nil, b.Format != "raw":
		return 0, nil
	case b.Remote != nil:
		return asked, nil
	case !b.Device && asked == 0:
		return 0, nil
	}
	f, err := os.Open(b.Path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return backing.GrownSize(f, asked)
}
