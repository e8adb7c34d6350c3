package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// arrival is a guest that moves here from another launcher.
type arrival struct {
	h   *libvirtd.Daemon
	m   launcherapi.Machine
	say func(launcherapi.MoveStage)
	// words has the messages of the source that the guest has ended there. Each gets an answer: nil if the guest runs here.
	words chan chan error
	// hungUp is closed when the source's libvirt has closed its connection.
	hungUp chan struct{}
	// still is set if the source reports that its guest is paused.
	still   atomic.Bool
	door    net.Listener
	arrived context.CancelFunc
	reply   chan<- error        // the answer to the message that let the guest run
	End     *launcherapi.Report // why no guest arrived
}

// Arrive waits until a guest has arrived and its source says that it has ended there. The guest does not run yet: the caller calls run. If no
// guest arrives, the end of the arrival says why.
func Arrive(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine, said *atomic.Pointer[launcherapi.Moving]) (guest.Guest, *arrival, error) {
	events, err := h.Virt.LifecycleEvents(context.WithoutCancel(ctx))
	if err != nil {
		return guest.Guest{}, nil, fmt.Errorf("listen to libvirt: %w", err)
	}
	keys, err := movelink.AwaitKeys(ctx, launcherapi.MoveKeysDir, m.Incoming, launcherapi.MoveTarget)
	if err != nil {
		return guest.Guest{}, nil, err
	}
	if err := os.MkdirAll(movelink.Dir, 0o700); err != nil {
		return guest.Guest{}, nil, fmt.Errorf("make way for the guest: %w", err)
	}
	a := &arrival{h: h, m: m, words: make(chan chan error), hungUp: make(chan struct{}), say: func(s launcherapi.MoveStage) {
		said.Store(&launcherapi.Moving{ID: m.Incoming, Stage: s})
	}}
	if a.door, err = movelink.Listen(ctx, fmt.Sprintf(":%d", launcherapi.MovePort)); err != nil {
		return guest.Guest{}, nil, err
	}
	coming, arrived := context.WithCancel(ctx)
	a.arrived = arrived
	go movelink.Inbox{Keys: keys, Libvirt: h.Socket, Image: a.image, Room: a.room, Still: func() { a.still.Store(true) }, Gone: func() error { return a.gone(coming) },
		HungUp: sync.OnceFunc(func() { close(a.hungUp) })}.Serve(coming, a.door)
	a.say(launcherapi.MoveWaits)
	dom, reply, end := a.await(ctx, events)
	if end != nil {
		arrived()
		a.End = end
		return guest.Guest{}, a, nil
	}
	a.reply = reply
	return guest.Guest{Libvirt: h, Domain: dom, Machine: m, Events: events, Paused: a.still.Load()}, a, nil // the source says whether it is paused before it sends anything
}

// Run starts the guest, unless a user has paused it, and tells its source so.
func (a *arrival) Run(g guest.Guest) error {
	var err error
	if !g.Paused {
		err = a.h.Virt.DomainResume(g.Domain)
	}
	a.reply <- err
	if err != nil {
		return err
	}
	_ = a.door.Close() // the guest may use its port
	a.say(launcherapi.MoveRuns)
	return nil
}

// Close ends the connections to the source.
func (a *arrival) Close() { a.arrived() }

// await waits until all of the guest is here and its source says that it has ended there. It returns where the answer to that goes, or the
// report of a launcher that no guest came to.
func (a *arrival) await(ctx context.Context, events <-chan libvirt.DomainEventLifecycleMsg) (libvirt.Domain, chan<- error, *launcherapi.Report) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	held := false
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return libvirt.Domain{}, nil, &launcherapi.Report{End: launcherapi.Refused, Detail: libvirtd.ErrEnded.Error()}
			}
			if libvirt.DomainEventType(e.Event) == libvirt.DomainEventStopped {
				a.answerOut(ctx)
				return libvirt.Domain{}, nil, &launcherapi.Report{End: launcherapi.Refused, Detail: "the guest did not come; it is where it was"}
			}
		case reply := <-a.words:
			dom, err := a.whole()
			if err == nil {
				return dom, reply, nil
			}
			reply <- err
		case <-tick.C:
			dom, err := a.whole()
			if err == nil && !held {
				held = true
				a.say(launcherapi.MoveHolds)
			}
			if o := readMove(launcherapi.TaskDir); err == nil && o.Run && o.ID == a.m.Incoming {
				return dom, make(chan error, 1), nil
			}
		case <-a.h.Gone:
			return libvirt.Domain{}, nil, &launcherapi.Report{End: launcherapi.Refused, Detail: libvirtd.ErrEnded.Error()}
		case <-ctx.Done():
			return libvirt.Domain{}, nil, &launcherapi.Report{End: launcherapi.Stopped, Detail: "stopped before the guest was handed over"}
		}
	}
}

// answerOut waits until this libvirt has answered the source's. If the launcher ended earlier, the source would report a lost connection in place
// of the reason why the guest could not be sent.
func (a *arrival) answerOut(ctx context.Context) {
	over := time.NewTimer(movelink.Silent / 2)
	defer over.Stop()
	select {
	case <-a.hungUp:
	case <-over.C:
	case <-ctx.Done():
	}
}

var errNotWhole = errors.New("the guest is not here in whole")

// whole returns the domain of the guest if all of it is here. Until then libvirt reports that it is paused for the move, or does not know it.
func (a *arrival) whole() (libvirt.Domain, error) {
	dom, err := a.h.Virt.DomainLookupByName(domain.Name(a.m))
	if err != nil {
		return dom, errNotWhole
	}
	state, reason, err := a.h.Virt.DomainGetState(dom, 0)
	if err != nil || libvirt.DomainState(state) != libvirt.DomainPaused || libvirt.DomainPausedReason(reason) != libvirt.DomainPausedUser {
		return dom, errNotWhole
	}
	return dom, nil
}

// gone passes on the source's message that the guest has ended there, and returns when the guest runs here.
func (a *arrival) gone(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case a.words <- reply:
	case <-ctx.Done():
		return errors.New("nobody waits for the guest any more")
	}
	return <-reply
}

// room makes a new claim's disk as large as the source's. A device must have that size already.
func (a *arrival) room(volume string, size int64) error {
	if !slices.Contains(a.m.Sent, volume) {
		return fmt.Errorf("no disk is to be sent for volume %s", volume)
	}
	_, used := a.m.Updated[volume]
	if slices.Contains(a.m.Block, volume) {
		has, err := backing.Size(backing.ClaimDevice(volume))
		if err != nil || has != size { // QEMU sends only to a disk of the same size, and a device cannot be cut
			return errors.Join(fmt.Errorf("the device of volume %s has %d bytes, and the guest's disk %d: use a claim of that size", volume, has, size), err)
		}
		if used {
			return backing.Clear(backing.ClaimDevice(volume), has)
		}
		return nil
	}
	if used {
		if err := os.Truncate(backing.ClaimFile(volume), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear the disk of volume %s: %w", volume, err)
		}
	}
	_, err := backing.Resize(backing.ClaimFile(volume), size)
	return err
}

// image receives a disk that the source generated, in place of the one that was generated here.
func (a *arrival) image(volume string, size int64, from io.Reader) error {
	if !slices.ContainsFunc(a.m.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == volume && generated(v) }) {
		return fmt.Errorf("no disk is made of volume %s", volume)
	}
	f, err := os.OpenFile(backing.GeneratedFile(volume), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("take the disk of volume %s: %w", volume, err)
	}
	n, err := io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("take the disk of volume %s: %w", volume, err)
	}
	return nil
}
