// Package plug changes the disks of a running guest as the controller orders: it adds disks that holders hand over, asks the guest to release
// disks, changes media, lets disks grow, and follows the orders to keep copies.
//
// It does not know which disk a machine should have; that is the order's to say.
package plug

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/keep"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// plugs adds disks to a running guest and removes them. One goroutine owns it; others send to it by channels.
type plugs struct {
	qemu   *qmp.Monitor
	dir    string // of the orders
	log    *slog.Logger
	offers chan handover.Disk
	offer  map[string]handover.Disk   // disks that were handed over and not ordered yet, by volume
	has    map[string]*plug           // disks that were added, by volume
	asked  map[string]*releaseRequest // disks that the guest was asked to release, by device
	given  map[string]*releaseRequest // disks that the guest was started with and has released, by volume
	count  int
	// returns gets what is reported about the orders; other goroutines read it.
	returns *atomic.Pointer[launcherapi.Returns]
	network *remote.Added
	keeps   *keep.Copies
	// own opens a disk again that the guest was started with.
	own func(volume string) (kubevirt.Disk, handover.Disk, error)
	// drives are the CD drives of the guest, by volume. A drive stays in the guest; its medium is added and removed.
	drives map[string]bool
	domain attacher    // the guest's domain
	sets   string      // the directory with the names of file descriptor sets
	still  *sync.Mutex // held while the guest is moved: its disks do not change then
	growth *growth
}

// plug is a disk that was added.
type plug struct {
	id     string        // of the device, and of the block node of a network disk
	set    int           // the number of QEMU's set of file descriptors
	holder *net.UnixConn // nil if the disk is in this pod
	file   fileID        // the file that QEMU has open
	leaves bool          // the guest has released it; QEMU may still have its files open
	// measure is a second descriptor of the file, to see how large it is; nil for network disks and for disks that are only read.
	measure *os.File
	// source describes a network disk, and certificates is the id of its object in QEMU; empty for other disks.
	source, certificates string
}

// forget closes the descriptor that measures the disk, so that its holder can release the claim.
func (p *plug) forget() {
	if p.measure != nil {
		_ = p.measure.Close()
	}
}

// releaseRequest is a disk that the guest was asked to release.
type releaseRequest struct {
	volume      string
	first, last time.Time
	refused     string // QEMU's error if it did not ask the guest
	own         bool   // the guest was started with it
}

// again is how long to wait before the guest is asked once more to release a disk: a guest that is still booting misses the request.
const again = 10 * time.Second

// Needs are the functions that adding and removing disks needs besides the guest.
type Needs struct {
	QEMU    *qmp.Monitor
	Log     *slog.Logger
	Remotes *remote.Disks
	Disks   map[string]backing.Disk // those that the guest was started with
	Quiet   func(do func()) bool    // calls do while the guest's filesystems are frozen, and returns whether they are
	Returns *atomic.Pointer[launcherapi.Returns]
	Still   *sync.Mutex // held while the guest is moved
}

// Start follows the orders about disks until the guest ends.
func Start(g guest.Guest, of Needs, done <-chan struct{}) error {
	m := g.Machine
	p := &plugs{
		domain: attached{g, domain.BlockQueues(m.Spec.Domain.Devices, launcherapi.CPUs(m.Spec.Domain.CPU))}, sets: launcherapi.SetsDir, still: of.Still,
		own:  func(volume string) (kubevirt.Disk, handover.Disk, error) { return ownDisk(m, volume) },
		qemu: of.QEMU, dir: launcherapi.TaskDir, log: of.Log, offers: make(chan handover.Disk),
		network: remote.NewAdded(of.Remotes, m), growth: newGrowth(m, of.Disks), keeps: keep.New(of.QEMU, of.Log, of.Quiet),
		offer: map[string]handover.Disk{}, has: map[string]*plug{}, asked: map[string]*releaseRequest{}, given: map[string]*releaseRequest{}, returns: of.Returns,
		drives: drives(m.Spec),
	}
	door, err := rendezvous.Serve(launcherapi.MeetDir, func(c *net.UnixConn) bool {
		go p.listen(c, done)
		return true
	})
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = door.Close() }()
		p.run(done)
	}()
	return nil
}

// listen receives a disk from a holder and passes it to the goroutine that owns the disks.
func (p *plugs) listen(c *net.UnixConn, done <-chan struct{}) {
	what, files, err := rendezvous.ReceiveOffer(c)
	if err != nil {
		p.log.Warn("a disk was not handed over", "error", err.Error())
		_ = c.Close()
		return
	}
	o := handover.Disk{Offer: what, File: files[0], Holder: c}
	if len(files) > 1 {
		o.Reader = files[1]
	}
	select {
	case p.offers <- o:
	case <-done:
		o.Close()
	}
}

// run follows the orders until the guest ends.
func (p *plugs) run(done <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case o := <-p.offers:
			if old, ok := p.offer[o.Volume]; ok {
				old.Close()
			}
			p.offer[o.Volume] = o
		case id := <-p.qemu.Deleted:
			p.gone(id)
		case <-tick.C:
			if p.still.TryLock() {
				want, now := readDisks(p.dir), time.Now()
				p.follow(want, now)
				p.grow(want.Sizes, now)
				p.still.Unlock()
			}
		case <-done:
			return
		}
	}
}

// readDisks returns the orders about disks as they are now; empty ones if there were none yet.
func readDisks(dir string) launcherapi.Disks {
	var d launcherapi.Disks
	if text, err := os.ReadFile(filepath.Join(dir, launcherapi.DisksFile)); err == nil {
		_ = json.Unmarshal(text, &d) // the kubelet replaces the whole file at once, and the controller has written it
	}
	return d
}

// follow changes the guest's disks as the orders say, and reports those that the guest does not release.
func (p *plugs) follow(want launcherapi.Disks, now time.Time) {
	p.settle()
	for _, disk := range want.Added {
		o, ok := p.offer[disk.Name]
		if !ok || slices.Contains(want.Removed, disk.Name) && p.given[disk.Name] == nil {
			continue // it was not handed over yet, or the guest has to release another disk of that name first
		}
		delete(p.offer, disk.Name)
		if added, ok := want.Network[disk.Name]; ok {
			p.attachNetwork(disk, added, o)
		} else {
			p.attach(disk, o)
		}
	}
	p.addBack(want.Removed, now)
	said := launcherapi.Returns{Kept: map[string]string{}, Serial: want.Serial}
	p.takeBack(want, now, &said)
	for volume, plug := range p.has {
		if plug.holder != nil {
			said.Has = append(said.Has, volume)
		}
	}
	p.keep(want.Keeps, &said)
	slices.Sort(said.Has)
	p.returns.Store(&said)
}

// text says since when the guest does not release the disk.
func (q *releaseRequest) text() string {
	text := fmt.Sprintf("the guest was asked for it at %s and has not given it up; it is asked again every %s",
		q.first.UTC().Format(time.TimeOnly), again)
	if q.refused != "" {
		text += ": " + q.refused
	}
	return text
}

var errAnotherFile = errors.New("the guest still has the disk that it was given before, and this is another file or device: " +
	"remove the volume from the machine and add it again")

// attach adds a disk and tells its holder. If the guest has the disk already, the holder was restarted or replaced: QEMU keeps the file that it
// has open, so the new holder must hand over the same file.
func (p *plugs) attach(disk kubevirt.Disk, o handover.Disk) {
	defer o.CloseFiles() // QEMU has copies of its own
	id, err := idOf(o.File)
	had, again := p.has[disk.Name]
	if err == nil && again && had.file == id {
		had.holder = o.Holder
		_ = rendezvous.SendAnswer(o.Holder, rendezvous.Answer{Attached: true})
		return
	}
	var made *plug
	switch {
	case err != nil:
	case again:
		err = errAnotherFile
	case o.Login:
		err = errNoLogin
	default:
		made, err = p.plug(disk, o)
	}
	if err != nil {
		p.refuse(disk.Name, o, err)
		return
	}
	made.file = id
	p.has[disk.Name] = made
	p.log.Info("a disk was added to the guest", "volume", disk.Name)
	_ = rendezvous.SendAnswer(o.Holder, rendezvous.Answer{Attached: true})
}

// refuse tells a holder why its disk cannot be added.
func (p *plugs) refuse(volume string, o handover.Disk, err error) {
	p.log.Error("a disk cannot be added to the guest", "volume", volume, "error", err.Error())
	_ = rendezvous.SendAnswer(o.Holder, rendezvous.Answer{Refused: launcherapi.Shorten(err.Error())})
	_ = o.Holder.Close()
}

// keep carries out the orders about claims that get a copy of a disk, and reports the progress.
func (p *plugs) keep(want map[string]launcherapi.KeepOrder, said *launcherapi.Returns) {
	if p.keeps == nil {
		return
	}
	for name, order := range want {
		if o, ok := p.offer[name]; ok && p.keeps.Take(name, order, o) {
			delete(p.offer, name)
		}
	}
	p.keeps.Follow(want)
	if len(p.keeps.Words) > 0 {
		said.Keeps = maps.Clone(p.keeps.Words)
	}
	for name, k := range p.keeps.All {
		if k.File != nil {
			said.Has = append(said.Has, name)
		}
	}
}
