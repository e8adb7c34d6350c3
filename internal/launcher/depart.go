package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// moves sends the guest of this launcher to another.
type moves struct {
	said  atomic.Pointer[launcherapi.Moving]
	still sync.Mutex // held while the guest is sent, so that its disks stay as they are
	qemu  *qmp.Monitor
	// pauser knows whether somebody has paused the guest.
	pauser *pauser

	mu     sync.Mutex
	at     launcherapi.Move // the last that was begun
	to     movelink.Target  // where it goes
	cancel context.CancelCauseFunc
	since  time.Time // when the guest was last held for the move
	moving bool
	before func() // ends what keeps the guest's disks still

	word word
}

// generated: the launcher makes the disk of something that may have changed since, so it is sent as it is.
func generated(v kubevirt.Volume) bool {
	return v.CloudInitNoCloud != nil || v.CloudInitConfigDrive != nil || v.ConfigMap != nil || v.Secret != nil
}

func (v *moves) busy() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moving
}

// heard notes since when the guest does not run.
func (v *moves) heard(e libvirt.DomainEventLifecycleMsg, now time.Time) {
	if libvirt.DomainEventType(e.Event) == libvirt.DomainEventSuspended &&
		libvirt.DomainEventSuspendedDetailType(e.Detail) == libvirt.DomainEventSuspendedMigrated {
		v.mu.Lock()
		v.since = now
		v.mu.Unlock()
	}
}

var (
	errAsked   = errors.New("it was asked to keep the guest")
	errTooSlow = errors.New("the guest writes faster than it can be sent in the time that completionTimeoutPerGiB allows; allow more, more bandwidth, or allowAutoConverge")
	errStalls  = errors.New("nothing was sent for as long as progressTimeout allows")
	errStill   = errors.New("the guest does not run: it waits for a disk; a guest that has moved runs") // the target cannot tell
)

// startMoves follows the orders about moves until the guest ends.
func (l *Launcher) startMoves(ctx context.Context, g guestHere, qemu *qmp.Monitor, ended <-chan struct{}) {
	l.moves.qemu = qemu
	go l.moves.tellEarly(ctx, qemu)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if o := readMove(launcherapi.TaskDir); o.ID != "" && o.To != "" {
					l.follow(ctx, g, o)
				}
			case <-ended:
				return
			}
		}
	}()
}

// readMove is the order as it is now. Before the first there is an empty file or none.
func readMove(dir string) launcherapi.Move {
	var o launcherapi.Move
	if text, err := os.ReadFile(filepath.Join(dir, launcherapi.MoveFile)); err == nil {
		_ = json.Unmarshal(text, &o) // the kubelet replaces the file as a whole, and the controller wrote it
	}
	return o
}

// follow begins a move, or cancels the one it has begun. A move that has failed is not tried again: the next has another name.
func (l *Launcher) follow(ctx context.Context, g guestHere, o launcherapi.Move) {
	v := &l.moves
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case o.ID == v.at.ID && o.Cancel && v.moving:
		v.cancel(errAsked)
	case o.ID == v.at.ID || v.moving:
	case o.Cancel:
		v.at = o
		v.said.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveStopped, Detail: errAsked.Error()})
	default:
		v.at, v.moving = o, true
		var sending context.Context
		sending, v.cancel = context.WithCancelCause(ctx)
		v.said.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends})
		go l.depart(sending, g, o)
	}
}

// depart sends the guest and says what came of it. Of a guest that is gone the watch over it tells.
func (l *Launcher) depart(ctx context.Context, g guestHere, o launcherapi.Move) {
	v := &l.moves
	v.said.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends, Detail: waitsForKeys})
	keys, err := movelink.AwaitKeys(ctx, launcherapi.MoveKeysDir, o.ID, launcherapi.MoveSource)
	if err == nil {
		v.said.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends})
		if v.before != nil {
			v.before()
		}
		v.still.Lock()
		paused := v.pauser.fix()
		if err = l.send(ctx, g, o, movelink.Target{Address: o.To, Keys: keys}, paused); err == nil {
			return // moving still: nobody touches it any more
		}
		v.pauser.release()
		v.still.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.moving = false
	said := launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveFailed, Detail: cut(err.Error())}
	if errors.Is(context.Cause(ctx), errAsked) {
		said.Stage = launcherapi.MoveStopped
	}
	v.said.Store(&said)
	l.Log.Warn("the guest stays", "move", o.ID, "error", err.Error())
}

// waitsForKeys is said while the guest cannot be sent yet.
const waitsForKeys = "the kubelet has yet to bring the keys of this migration to the guest's pod"

// sendable returns an error if the guest stands still for another reason than that somebody has paused it.
func sendable(g guestHere, paused bool) error {
	state, reason, err := g.h.Virt.DomainGetState(g.dom, 0)
	switch {
	case err != nil:
		return fmt.Errorf("ask libvirt about the guest: %w", err)
	case libvirt.DomainState(state) == libvirt.DomainRunning:
		return nil
	case paused && libvirt.DomainState(state) == libvirt.DomainPaused && libvirt.DomainPausedReason(reason) == libvirt.DomainPausedUser:
		return nil
	}
	return errStill
}

func (l *Launcher) send(ctx context.Context, g guestHere, o launcherapi.Move, to movelink.Target, paused bool) error {
	if err := sendable(g, paused); err != nil {
		return err
	}
	sent, err := l.sending(g, o)
	if err != nil {
		return err
	}
	if paused {
		if err := to.Tell(ctx, movelink.Still, nil); err != nil {
			return err
		}
	}
	l.moves.mu.Lock()
	l.moves.to = to
	l.moves.mu.Unlock()
	if err := os.MkdirAll(movelink.Dir, 0o700); err != nil {
		return fmt.Errorf("make way for the guest: %w", err)
	}
	ways, end := context.WithCancel(context.WithoutCancel(ctx)) // a cancelled move still has to say so to the other side
	defer end()
	for _, which := range []string{movelink.Libvirt, movelink.Memory, movelink.Disks} {
		if err := to.Carry(ways, which); err != nil {
			return err
		}
	}
	for _, volume := range g.m.Spec.Volumes {
		if generated(volume) {
			if err := sendImage(ctx, to, volume.Name); err != nil {
				return err
			}
		}
	}
	for _, volume := range o.Disks {
		if err := to.Tell(ctx, fmt.Sprintf("%s %s %d", movelink.Room, volume, sent.sizes[volume]), nil); err != nil {
			return err
		}
	}
	l.Log.Info("the guest is being sent", "move", o.ID, "to", o.To)
	return l.perform(ctx, g, o, sent)
}

func sendImage(ctx context.Context, to movelink.Target, volume string) error {
	f, err := os.Open(backing.GeneratedFile(volume))
	if err != nil {
		return fmt.Errorf("send the disk of volume %s: %w", volume, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("send the disk of volume %s: %w", volume, err)
	}
	return to.Tell(ctx, fmt.Sprintf("%s %s %d", movelink.Image, volume, info.Size()), f)
}

// perform has libvirt send the guest, and stops it when ctx ends or it takes too long. The target holds the guest still: libvirt
// itself lets a target run it, and if it then cannot tell the source, both run it.
func (l *Launcher) perform(ctx context.Context, g guestHere, o launcherapi.Move, sent *sending) error {
	param := func(name, value string) libvirt.TypedParam {
		return libvirt.TypedParam{Field: name, Value: *libvirt.NewTypedParamValueString(value)}
	}
	flags := libvirt.MigrateLive | libvirt.MigratePeer2peer | libvirt.MigratePaused | libvirt.MigrateAbortOnError |
		libvirt.MigrateUnsafe // which disks can be opened on two nodes is the controller's to say; libvirt guesses
	params := []libvirt.TypedParam{param(libvirt.MigrateParamURI, "unix://"+movelink.Socket(movelink.Memory)), param(libvirt.MigrateParamDestXML, sent.guest)}
	for _, device := range sent.mirrored {
		params = append(params, param(libvirt.MigrateParamMigrateDisks, device))
	}
	if len(sent.mirrored) > 0 {
		flags |= libvirt.MigrateNonSharedInc
		params = append(params, param(libvirt.MigrateParamDisksURI, "unix://"+movelink.Socket(movelink.Disks)))
	}
	flags, params = limited(flags, params, o.Limits)
	if still := o.Limits.Downtime; still > 0 {
		if err := g.h.Virt.DomainMigrateSetMaxDowntime(g.dom, uint64(still), 0); err != nil {
			return fmt.Errorf("allow the guest to stand still for %d ms: %w", still, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		uri := libvirt.OptString{"qemu+unix:///session?socket=" + movelink.Socket(movelink.Libvirt)}
		_, err := g.h.Virt.DomainMigratePerform3Params(g.dom, uri, params, nil, flags)
		ended <- err
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	late, still := time.After(patience(g.m, o, sent)), stillness{limit: o.Limits.Stall()}
	stop, why := false, error(nil)
	stops := ctx.Done()
	for {
		select {
		case err := <-ended:
			if err != nil && why != nil {
				return why
			}
			return sent.plainly(err) // nil although it was to be stopped: it was too late for that
		case <-stops:
			stops, stop, why = nil, true, context.Cause(ctx)
		case <-late:
			stop, why = true, errTooSlow
		case <-tick.C:
			l.progress(g)
			if at := l.moves.said.Load(); at != nil && still.since(at.Sent, time.Now()) {
				stop, why = true, errStalls
			}
		}
		if stop { // libvirt refuses before the job has begun, so it is asked until it ends
			_ = g.h.Virt.DomainAbortJob(g.dom)
		}
	}
}

// limited adds the limits of the sending to what libvirt is told. It takes MiB a second, and at least one.
func limited(flags libvirt.DomainMigrateFlags, params []libvirt.TypedParam, l launcherapi.MoveLimits) (libvirt.DomainMigrateFlags, []libvirt.TypedParam) {
	if l.Converge {
		flags |= libvirt.MigrateAutoConverge
	}
	if l.Bandwidth > 0 {
		mib := uint64(max(l.Bandwidth>>20, 1))
		params = append(params, libvirt.TypedParam{Field: libvirt.MigrateParamBandwidth, Value: *libvirt.NewTypedParamValueUllong(mib)})
	}
	return flags, params
}

// stillness watches whether anything is sent.
type stillness struct {
	limit time.Duration
	sent  int64
	from  time.Time
}

// since: nothing was sent for too long.
func (s *stillness) since(sent int64, now time.Time) bool {
	if s.from.IsZero() || sent != s.sent {
		s.sent, s.from = sent, now
	}
	return now.Sub(s.from) > s.limit
}

// patience is how long the sending may take, for one GiB at least.
func patience(m launcherapi.Machine, o launcherapi.Move, sent *sending) time.Duration {
	memory, err := domain.Memory(m.Spec.Domain)
	if err != nil {
		memory = 0
	}
	for _, size := range sent.sizes {
		memory += size
	}
	return time.Duration(max(memory>>20, 1<<10)) * o.Limits.Each() / (1 << 10)
}

// progress notes how far the sending is.
func (l *Launcher) progress(g guestHere) {
	_, stats, err := g.h.Virt.DomainGetJobStats(g.dom, 0)
	if err != nil {
		return
	}
	said := launcherapi.Moving{ID: l.moves.at.ID, Stage: launcherapi.MoveSends}
	for _, s := range stats {
		n, ok := s.Value.I.(uint64)
		switch {
		case !ok:
		case s.Field == "data_processed":
			said.Sent = int64(min(n, 1<<62))
		case s.Field == "data_total":
			said.Total = int64(min(n, 1<<62))
		}
	}
	if said.Total > 0 {
		l.moves.said.Store(&said)
	}
}
