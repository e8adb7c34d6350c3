// Package move sends a guest with its local disks to another launcher, and receives one. Both sides follow the controller's orders; only one
// side runs the guest at any time.
//
// What it sends over is in package movelink. It decides nothing about where a guest goes.
package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Source sends the guest of this launcher to another. Its zero value belongs to a guest that does not run yet.
type Source struct {
	Reported atomic.Pointer[launcherapi.Moving] // what is reported
	Still    sync.Mutex                         // held while the guest is sent, so that its disks do not change
	qemu     *qmp.Monitor
	pauser   *guest.Pauser
	log      *slog.Logger

	mu     sync.Mutex
	at     launcherapi.Move // the last move that was begun
	to     movelink.Target  // its target
	cancel context.CancelCauseFunc
	since  time.Time // when libvirt last paused the guest for the move
	moving bool
	before func() // see Needs

	word word
}

// generated reports whether the launcher makes the disk of a volume from data that may have changed since. Such a disk is sent as it is.
func generated(v kubevirt.Volume) bool {
	return v.CloudInitNoCloud != nil || v.CloudInitConfigDrive != nil || v.ConfigMap != nil || v.Secret != nil
}

// Busy reports whether the guest is being sent.
func (v *Source) Busy() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moving
}

// Heard records when libvirt paused the guest for the move.
func (v *Source) Heard(e libvirt.DomainEventLifecycleMsg, now time.Time) {
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

// Needs are the functions that a move needs besides the guest.
type Needs struct {
	QEMU   *qmp.Monitor
	Pauser *guest.Pauser
	Log    *slog.Logger
	// Before is called before a move begins. It ends what holds the guest's disks.
	Before func()
}

// Start follows the orders about moves until the guest ends.
func (v *Source) Start(ctx context.Context, g guest.Guest, of Needs, ended <-chan struct{}) {
	v.qemu, v.pauser, v.log, v.before = of.QEMU, of.Pauser, of.Log, of.Before
	go v.tellEarly(ctx, of.QEMU)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if o := readMove(launcherapi.TaskDir); o.ID != "" && o.To != "" {
					v.follow(ctx, g, o)
				}
			case <-ended:
				return
			}
		}
	}()
}

// readMove returns the order about moves as it is now; an empty one if there was none yet.
func readMove(dir string) launcherapi.Move {
	var o launcherapi.Move
	if text, err := os.ReadFile(filepath.Join(dir, launcherapi.MoveFile)); err == nil {
		_ = json.Unmarshal(text, &o) // the kubelet replaces the whole file at once, and the controller has written it
	}
	return o
}

// follow begins a move, or cancels the one that runs. A move that has failed is not tried again: the next one has another ID.
func (v *Source) follow(ctx context.Context, g guest.Guest, o launcherapi.Move) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case o.ID == v.at.ID && o.Cancel && v.moving:
		v.cancel(errAsked)
	case o.ID == v.at.ID || v.moving:
	case o.Cancel:
		v.at = o
		v.Reported.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveStopped, Detail: errAsked.Error()})
	default:
		v.at, v.moving = o, true
		var sending context.Context
		sending, v.cancel = context.WithCancelCause(ctx)
		v.Reported.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends})
		go v.depart(sending, g, o)
	}
}

// depart sends the guest and reports if that fails. If it succeeds, the watch over the guest notices that the guest has ended here.
func (v *Source) depart(ctx context.Context, g guest.Guest, o launcherapi.Move) {
	v.Reported.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends, Detail: waitsForKeys})
	keys, err := movelink.AwaitKeys(ctx, launcherapi.MoveKeysDir, o.ID, launcherapi.MoveSource)
	if err == nil {
		v.Reported.Store(&launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends})
		if v.before != nil {
			v.before()
		}
		v.Still.Lock()
		paused := v.pauser.Fix()
		if err = v.send(ctx, g, o, movelink.Target{Address: o.To, Keys: keys}, paused); err == nil {
			return // v.moving stays set, so that nothing touches the guest any more
		}
		v.pauser.Release()
		v.Still.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.moving = false
	said := launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveFailed, Detail: launcherapi.Shorten(err.Error())}
	if errors.Is(context.Cause(ctx), errAsked) {
		said.Stage = launcherapi.MoveStopped
	}
	v.Reported.Store(&said)
	v.log.Warn("the guest stays", "move", o.ID, "error", err.Error())
}

// waitsForKeys is reported while the keys are not there yet.
const waitsForKeys = "the kubelet has yet to bring the keys of this migration to the guest's pod"

// sendable returns an error if the guest does not run for another reason than that a user has paused it.
func sendable(g guest.Guest, paused bool) error {
	state, reason, err := g.Libvirt.Virt.DomainGetState(g.Domain, 0)
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

func (v *Source) send(ctx context.Context, g guest.Guest, o launcherapi.Move, to movelink.Target, paused bool) error {
	if err := sendable(g, paused); err != nil {
		return err
	}
	sent, err := v.sending(g, o)
	if err != nil {
		return err
	}
	if paused {
		if err := to.Tell(ctx, movelink.Still, nil); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.to = to
	v.mu.Unlock()
	if err := os.MkdirAll(movelink.Dir, 0o700); err != nil {
		return fmt.Errorf("make way for the guest: %w", err)
	}
	ways, end := context.WithCancel(context.WithoutCancel(ctx)) // a move that is cancelled still has to tell the target so
	defer end()
	for _, which := range []string{movelink.Libvirt, movelink.Memory, movelink.Disks} {
		if err := to.Carry(ways, which); err != nil {
			return err
		}
	}
	for _, volume := range g.Machine.Spec.Volumes {
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
	v.log.Info("the guest is being sent", "move", o.ID, "to", o.To)
	return v.perform(ctx, g, o, sent)
}

// sendImage sends a disk that the launcher generated.
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

// perform lets libvirt send the guest, and aborts that when ctx ends or a limit is reached. The guest arrives paused: libvirt itself would let
// the target run it, and if the target then could not tell the source, both sides would run it.
func (v *Source) perform(ctx context.Context, g guest.Guest, o launcherapi.Move, sent *sending) error {
	param := func(name, value string) libvirt.TypedParam {
		return libvirt.TypedParam{Field: name, Value: *libvirt.NewTypedParamValueString(value)}
	}
	flags := libvirt.MigrateLive | libvirt.MigratePeer2peer | libvirt.MigratePaused | libvirt.MigrateAbortOnError |
		libvirt.MigrateUnsafe // the controller decides which disks can be opened on two nodes; libvirt would guess
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
		if err := g.Libvirt.Virt.DomainMigrateSetMaxDowntime(g.Domain, uint64(still), 0); err != nil {
			return fmt.Errorf("allow the guest to stand still for %d ms: %w", still, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		uri := libvirt.OptString{"qemu+unix:///session?socket=" + movelink.Socket(movelink.Libvirt)}
		_, err := g.Libvirt.Virt.DomainMigratePerform3Params(g.Domain, uri, params, nil, flags)
		ended <- err
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	late, still := time.After(patience(g.Machine, o, sent)), stillness{limit: o.Limits.Stall()}
	stop, why := false, error(nil)
	stops := ctx.Done()
	for {
		select {
		case err := <-ended:
			return sent.outcome(err, why)
		case <-stops:
			stops, stop, why = nil, true, context.Cause(ctx)
		case <-late:
			stop, why = true, errTooSlow
		case <-tick.C:
			v.progress(g)
			if at := v.Reported.Load(); at != nil && still.since(at.Sent, time.Now()) {
				stop, why = true, errStalls
			}
		}
		if stop { // libvirt refuses to abort before the job has begun, so it is asked again until the job ends
			_ = g.Libvirt.Virt.DomainAbortJob(g.Domain)
		}
	}
}

// outcome returns why the guest stays, of what libvirt answered, and why it was to be aborted. It is nil also if that came too late, and if libvirt has
// ended without an answer, as it does after the guest has: then the guest is not here any more, and the watch over it reports what became of it.
func (s *sending) outcome(answer, why error) error {
	switch {
	case answer == nil, errors.Is(answer, libvirt.ErrInterrupted):
		return nil
	case why != nil:
		return why
	}
	return s.plainly(answer)
}

// limited adds the limits of the move to libvirt's flags and parameters. libvirt counts bandwidth in MiB per second, at least one.
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

// stillness measures for how long no data was sent.
type stillness struct {
	limit time.Duration
	sent  int64
	from  time.Time
}

// since reports whether no data was sent for longer than the limit.
func (s *stillness) since(sent int64, now time.Time) bool {
	if s.from.IsZero() || sent != s.sent {
		s.sent, s.from = sent, now
	}
	return now.Sub(s.from) > s.limit
}

// patience returns how long the move may take: the limit for one GiB times the GiB of memory and disks, which count as one at least.
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

// progress reports how much was sent.
func (v *Source) progress(g guest.Guest) {
	_, stats, err := g.Libvirt.Virt.DomainGetJobStats(g.Domain, 0)
	if err != nil {
		return
	}
	said := launcherapi.Moving{ID: v.at.ID, Stage: launcherapi.MoveSends}
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
		v.Reported.Store(&said)
	}
}
