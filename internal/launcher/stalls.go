package launcher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// stalls notices that a guest waits for its disks, says so, and lets it go on. There are two ways to wait. A read or write
// that failed has paused the guest: it is tried again by letting the guest go on, which repeats what failed. The clients of
// iSCSI and Ceph never fail: they wait for their server, and the guest with them; that is seen by asking the server.
//
// One goroutine owns it; look and heard do not block.
type stalls struct {
	resume func() error
	// away are the servers that do not answer, by volume, found in the background and sent when they are known.
	away  chan map[string]string
	ask   func() map[string]string
	asked time.Time
	busy  bool
	say   func(text string, cause launcherapi.Fault)
	// why are the disks that have no room, in words; asked when a read or write has failed.
	why  func() []string
	full []string
	// cut are the disks whose source does not answer, in words; asked while the guest is paused.
	cut func() []string

	paused  time.Time // since when the guest is paused by a failed read or write; zero: it is not
	due     time.Time // when it is to be let go on
	going   time.Time // when it was let go on and has not failed since; zero: it is paused
	waiting map[string]waits
	said    string
	cause   launcherapi.Fault
}

// waits is a server that does not answer.
type waits struct {
	since time.Time
	text  string
}

// The times: how often a paused guest is let go on, for how long it must run before it counts as well, how often servers
// are asked, and for how long one may be silent before it is said.
const (
	resumeAgain = 5 * time.Second
	wellAfter   = 3 * time.Second
	askAgain    = 5 * time.Second
	silentFor   = 10 * time.Second
)

func newStalls(resume func() error, r *remote.Disks, qemu *qmp.Monitor) *stalls {
	f := &flights{qemu: qemu, last: map[string]string{}}
	ask := func() map[string]string {
		out := r.Unreachable()
		for volume, text := range f.stuck(r.Opened()) {
			if out[volume] == "" {
				out[volume] = text
			}
		}
		return out
	}
	return &stalls{resume: resume, ask: ask,
		away: make(chan map[string]string, 1), waiting: map[string]waits{}}
}

// heard takes an event of the domain's.
func (s *stalls) heard(e libvirt.DomainEventLifecycleMsg, now time.Time) {
	if libvirt.DomainEventType(e.Event) == libvirt.DomainEventSuspended &&
		libvirt.DomainEventSuspendedDetailType(e.Detail) == libvirt.DomainEventSuspendedIoerror {
		s.failed(now)
	}
}

// failed: a read or write of the guest's has failed, and it is paused.
func (s *stalls) failed(now time.Time) {
	if s.paused.IsZero() {
		s.paused = now
	}
	s.due, s.going = now.Add(resumeAgain), time.Time{}
	if s.why != nil {
		s.full = s.why()
	}
	s.tell()
}

// look does what is due.
func (s *stalls) look(now time.Time) {
	switch {
	case s.paused.IsZero():
	case !s.going.IsZero() && now.Sub(s.going) >= wellAfter && len(s.cutOff()) == 0: // a read that needs the source fails after a while only
		s.paused, s.going = time.Time{}, time.Time{}
	case s.going.IsZero() && !now.Before(s.due):
		s.due = now.Add(resumeAgain)
		if s.resume() == nil {
			s.going = now
		}
	}
	s.servers(now)
	s.tell()
}

// servers asks the servers in the background and takes in what was found.
func (s *stalls) servers(now time.Time) {
	select {
	case found := <-s.away:
		s.busy = false
		maps.DeleteFunc(s.waiting, func(volume string, _ waits) bool { return found[volume] == "" })
		for volume, text := range found {
			w := s.waiting[volume]
			if w.since.IsZero() {
				w.since = now
			}
			s.waiting[volume] = waits{w.since, text}
		}
	default:
	}
	if !s.busy && now.Sub(s.asked) >= askAgain {
		s.busy, s.asked = true, now
		go func() { s.away <- s.ask() }()
	}
}

// tell says what the guest waits for, if that is something else than before.
func (s *stalls) tell() {
	var parts []string
	var cause launcherapi.Fault
	master := func(text string) bool { return strings.HasPrefix(text, fullMaster) } // of a copy, its own text says all
	if !s.paused.IsZero() && slices.ContainsFunc(s.full, master) {
		cause = launcherapi.DiskFull
	}
	if !s.paused.IsZero() {
		parts = append(parts, fmt.Sprintf("a read or write has failed and the guest is paused since %s; it is tried again every %s",
			s.paused.UTC().Format(time.TimeOnly), resumeAgain))
		parts = append(parts, s.full...)
		if cut := s.cutOff(); len(cut) > 0 {
			parts = append(parts, cut...)
			cause = cmp.Or(cause, launcherapi.DiskSourceAway)
		}
	}
	for _, volume := range slices.Sorted(maps.Keys(s.waiting)) {
		if w := s.waiting[volume]; s.asked.Sub(w.since) >= silentFor || !s.paused.IsZero() {
			parts = append(parts, fmt.Sprintf("volume %s: %s, since %s", volume, w.text, w.since.UTC().Format(time.TimeOnly)))
			if strings.HasPrefix(w.text, inFlight) && (s.paused.IsZero() || len(s.full) == 0) {
				cause = cmp.Or(cause, launcherapi.DiskStalled)
			}
		}
	}
	if text := strings.Join(parts, "; "); text != s.said || cause != s.cause {
		s.said, s.cause = text, cause
		s.say(text, cause)
	}
}

func (s *stalls) cutOff() []string {
	if s.cut == nil {
		return nil
	}
	return s.cut()
}
