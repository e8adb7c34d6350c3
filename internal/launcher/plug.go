package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// plugs gives a running guest disks and takes them back. One goroutine owns it; everything else reaches it by channels.
type plugs struct {
	qemu   *qmp.Monitor
	dir    string // of the orders
	log    *slog.Logger
	offers chan offer
	offer  map[string]offer // by volume: disks at hand that nobody has asked for yet
	has    map[string]*plug // by volume: what the guest was given
	asked  map[string]*plea // by device: what the guest was asked to give back
	given  map[string]*plea // by volume: disks that the guest was started with and has given back
	count  int
	// returns is what to say of what was asked; others read it.
	returns *atomic.Pointer[launcherapi.Returns]
	network *remote.Added
	keeps   *keeps
	// own opens a disk that the guest was started with.
	own func(volume string) (kubevirt.Disk, offer, error)
	// drives are the CD drives of the guest, by volume. They stay; what is given and taken back is the medium.
	drives map[string]bool
	// domain is the guest as libvirt knows it, and still is held while it moves: nobody touches its disks then.
	domain attacher
	sets   string // where the names of sets of files are
	still  *sync.Mutex
	growth *growth
}

// offer is a disk that a holder hands over, and the holder.
type offer struct {
	rendezvous.Offer
	file   *os.File
	holder *net.UnixConn
	reader *os.File // the same disk, opened for reading; nil: file is
}

// plug is a disk the guest was given.
type plug struct {
	id     string        // of the device, and of the block node of a network disk
	set    int           // of the files; libvirt calls it by name and knows the disk
	holder *net.UnixConn // nil: it is in this pod
	file   fileID        // what QEMU has open
	leaves bool          // the guest has given it up, and its files may be open still
	// measure is the file once more, to see how large it is; nil with network disks, and with those that are only read.
	measure *os.File
	// source is what a network disk is, and certificates the name of its object; empty with others.
	source, certificates string
}

// forget closes what measures the disk, so that its holder can release it.
func (p *plug) forget() {
	if p.measure != nil {
		_ = p.measure.Close()
	}
}

// plea is a disk that the guest was asked to give back.
type plea struct {
	volume      string
	first, last time.Time
	refused     string // QEMU's words if it would not even ask
	own         bool   // the guest was started with it
}

// again is after how long a guest that has not given a disk up is asked once more: one that is still booting does not hear it.
const again = 10 * time.Second

// startPlugs waits for disks until the guest ends.
func (l *Launcher) startPlugs(qemu *qmp.Monitor, g guestHere, q *quiet, done <-chan struct{}) error {
	m := g.m
	p := &plugs{
		domain: attached{g.h, g.dom, domain.BlockQueues(m.Spec.Domain.Devices, launcherapi.CPUs(m.Spec.Domain.CPU))}, sets: launcherapi.SetsDir, still: &l.moves.still,
		own:  func(volume string) (kubevirt.Disk, offer, error) { return ownDisk(m, volume) },
		qemu: qemu, dir: launcherapi.TaskDir, log: l.Log, offers: make(chan offer),
		network: remote.NewAdded(l.remotes, m), growth: newGrowth(m, l.disks), keeps: newKeeps(qemu, l.Log, q.during),
		offer: map[string]offer{}, has: map[string]*plug{}, asked: map[string]*plea{}, given: map[string]*plea{}, returns: &l.returns,
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

// listen passes a holder's offer to the goroutine that owns the disks.
func (p *plugs) listen(c *net.UnixConn, done <-chan struct{}) {
	what, files, err := rendezvous.ReceiveOffer(c)
	if err != nil {
		p.log.Warn("a disk was not handed over", "error", err.Error())
		_ = c.Close()
		return
	}
	o := offer{Offer: what, file: files[0], holder: c}
	if len(files) > 1 {
		o.reader = files[1]
	}
	select {
	case p.offers <- o:
	case <-done:
		o.drop()
	}
}

func (p *plugs) run(done <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case o := <-p.offers:
			if old, ok := p.offer[o.Volume]; ok {
				old.drop()
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

func (o offer) drop() {
	o.closeFiles()
	_ = o.holder.Close()
}

func (o offer) closeFiles() {
	_ = o.file.Close()
	if o.reader != nil {
		_ = o.reader.Close()
	}
}

// readDisks are the orders as they are now. Before the first there is an empty file or none.
func readDisks(dir string) launcherapi.Disks {
	var d launcherapi.Disks
	if text, err := os.ReadFile(filepath.Join(dir, launcherapi.DisksFile)); err == nil {
		_ = json.Unmarshal(text, &d) // the kubelet replaces the file as a whole, and the controller wrote it
	}
	return d
}

// follow makes the guest's disks what the orders say, and leaves word of those it does not give back.
func (p *plugs) follow(want launcherapi.Disks, now time.Time) {
	p.settle()
	for _, disk := range want.Added {
		o, ok := p.offer[disk.Name]
		if !ok || slices.Contains(want.Removed, disk.Name) && p.given[disk.Name] == nil {
			continue // there is none, or the guest has to give back another of that name first
		}
		delete(p.offer, disk.Name)
		if added, ok := want.Network[disk.Name]; ok {
			p.attachNetwork(disk, added, o)
		} else {
			p.attach(disk, o)
		}
	}
	p.regret(want.Removed, now)
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

func (q *plea) text() string {
	text := fmt.Sprintf("the guest was asked for it at %s and has not given it up; it is asked again every %s",
		q.first.UTC().Format(time.TimeOnly), again)
	if q.refused != "" {
		text += ": " + q.refused
	}
	return text
}

var errAnotherFile = errors.New("the guest still has the disk that it was given before, and this is another file or device: " +
	"remove the volume from the machine and add it again")

// attach gives the guest a disk and tells the holder. One that it has already came from a holder that was restarted or
// replaced; QEMU keeps the file it has, so the new holder must have that one.
func (p *plugs) attach(disk kubevirt.Disk, o offer) {
	defer o.closeFiles() // QEMU has copies of its own
	id, err := idOf(o.file)
	had, again := p.has[disk.Name]
	if err == nil && again && had.file == id {
		had.holder = o.holder
		_ = rendezvous.SendAnswer(o.holder, rendezvous.Answer{Attached: true})
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
	p.log.Info("the guest was given a disk", "volume", disk.Name)
	_ = rendezvous.SendAnswer(o.holder, rendezvous.Answer{Attached: true})
}

// refuse tells a holder why the guest cannot have its disk.
func (p *plugs) refuse(volume string, o offer, err error) {
	p.log.Error("the guest cannot have a disk", "volume", volume, "error", err.Error())
	_ = rendezvous.SendAnswer(o.holder, rendezvous.Answer{Refused: cut(err.Error())})
	_ = o.holder.Close()
}

// cut is as much of a sentence as a message can have.
func cut(text string) string {
	const most = 2 << 10
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
