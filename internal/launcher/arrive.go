package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/libvirtd"
	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// arrival is a guest that comes from another launcher.
type arrival struct {
	h   *libvirtd.Daemon
	m   launcherapi.Machine
	say func(launcherapi.MoveStage)
	// words are questions whether the guest may run, from the source: it has ended there. Each gets its answer.
	words chan chan error
	// hungUp: the source's libvirt has ended the conversation.
	hungUp chan struct{}
	// still: the source says that its guest is paused.
	still atomic.Bool
}

// arrive waits for a guest, holds it still until its source's has ended, and runs it to its end.
func (l *Launcher) arrive(ctx context.Context, h *libvirtd.Daemon, m launcherapi.Machine) launcherapi.Report {
	events, err := h.Virt.LifecycleEvents(context.WithoutCancel(ctx))
	if err != nil {
		return refused(fmt.Errorf("listen to libvirt: %w", err))
	}
	keys, err := movelink.AwaitKeys(ctx, launcherapi.MoveKeysDir, m.Incoming, launcherapi.MoveTarget)
	if err != nil {
		return refused(err)
	}
	if err := os.MkdirAll(movelink.Dir, 0o700); err != nil {
		return refused(fmt.Errorf("make way for the guest: %w", err))
	}
	door, err := movelink.Listen(ctx, fmt.Sprintf(":%d", launcherapi.MovePort))
	if err != nil {
		return refused(err)
	}
	a := &arrival{h: h, m: m, words: make(chan chan error), hungUp: make(chan struct{}), say: func(s launcherapi.MoveStage) {
		l.moves.said.Store(&launcherapi.Moving{ID: m.Incoming, Stage: s})
	}}
	coming, arrived := context.WithCancel(ctx)
	defer arrived()
	go movelink.Inbox{Keys: keys, Libvirt: h.Socket, Image: a.image, Room: a.room, Still: func() { a.still.Store(true) }, Gone: func() error { return a.gone(coming) },
		HungUp: sync.OnceFunc(func() { close(a.hungUp) })}.Serve(coming, door)
	a.say(launcherapi.MoveWaits)
	dom, reply, end := a.await(ctx, events)
	if end != nil {
		return *end
	}
	paused := a.still.Load() // it was said before anything was sent
	r := l.attend(ctx, guestHere{h, dom, m, events, paused}, func() error {
		var err error
		if !paused {
			err = h.Virt.DomainResume(dom)
		}
		reply <- err
		if err != nil {
			return err
		}
		_ = door.Close() // its port may be one of the guest's
		a.say(launcherapi.MoveRuns)
		return nil
	})
	r.Came = true // or was about to: its source's is gone
	return r
}

// await returns the guest when it is here in whole and its source's has ended, and who wants to know that it runs.
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

// answerOut lets our libvirt answer the source's, which otherwise knows that the other side is gone and forgets why the guest could not be sent.
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

// whole is the guest if all of it is here. Until then libvirt calls it paused for the move, or does not know it.
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

// gone asks to let the guest run.
func (a *arrival) gone(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case a.words <- reply:
	case <-ctx.Done():
		return errors.New("nobody waits for the guest any more")
	}
	return <-reply
}

// room makes the disk of a claim that is new as large as the source's. A device has its size, which has to do.
func (a *arrival) room(volume string, size int64) error {
	if !slices.Contains(a.m.Sent, volume) {
		return fmt.Errorf("no disk is to be sent for volume %s", volume)
	}
	_, used := a.m.Updated[volume]
	if slices.Contains(a.m.Block, volume) {
		has, err := backing.Size(backing.ClaimDevice(volume))
		if err != nil || has < size {
			return errors.Join(fmt.Errorf("the device of volume %s has %d bytes, and the guest's disk %d", volume, has, size), err)
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

// image takes a disk that the source made for the guest, in place of the one that was made here.
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
