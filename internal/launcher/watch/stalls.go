// Package watch notices that a guest waits for its disks, reports which and why, and resumes a guest whose read or write has failed.
package watch

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

// Stalls notices that a guest waits for its disks. There are two cases. If a read or write has failed, QEMU has paused the guest; resuming the
// guest repeats the operation. The clients of iSCSI and Ceph never fail: they wait for their server, and the guest waits with them; that is found
// by connecting to the server.
//
// One goroutine owns it. look and heard do not block.
type Stalls struct {
	resume func() error
	// away gets the servers that do not answer, by volume, from the goroutine that asks them.
	away  chan map[string]string
	ask   func() map[string]string
	asked time.Time
	busy  bool
	Say   func(text string, cause launcherapi.Fault)
	// why describes the disks that have no room. It is called when a read or write has failed.
	Why  func() []string
	full []string
	// cut describes the disks whose source does not answer. It is called while the guest is paused.
	Cut func() []string

	paused  time.Time // since when the guest is paused by a failed read or write; zero if it is not
	due     time.Time // when to resume it
	going   time.Time // when it was resumed, if nothing has failed since; zero if it is paused
	waiting map[string]waits
	said    string
	cause   launcherapi.Fault
}

// waits is a server that does not answer.
type waits struct {
	since time.Time
	text  string
}

// The times: how often a paused guest is resumed, how long it must run before it counts as well, how often servers are asked, and how long a
// server may be silent before that is reported.
const (
	resumeAgain = 5 * time.Second
	wellAfter   = 3 * time.Second
	askAgain    = 5 * time.Second
	silentFor   = 10 * time.Second
)

// New watches a guest that resume resumes.
func New(resume func() error, r *remote.Disks, qemu *qmp.Monitor) *Stalls {
	f := &pendingIO{qemu: qemu, last: map[string]string{}}
	ask := func() map[string]string {
		out := r.Unreachable()
		for volume, text := range f.stuck(r.Opened()) {
			if out[volume] == "" {
				out[volume] = text
			}
		}
		return out
	}
	return &Stalls{resume: resume, ask: ask,
		away: make(chan map[string]string, 1), waiting: map[string]waits{}}
}

// Heard handles an event of the domain.
func (s *Stalls) Heard(e libvirt.DomainEventLifecycleMsg, now time.Time) {
	if libvirt.DomainEventType(e.Event) == libvirt.DomainEventSuspended &&
		libvirt.DomainEventSuspendedDetailType(e.Detail) == libvirt.DomainEventSuspendedIoerror {
		s.failed(now)
	}
}

// failed handles that QEMU has paused the guest because a read or write failed.
func (s *Stalls) failed(now time.Time) {
	if s.paused.IsZero() {
		s.paused = now
	}
	s.due, s.going = now.Add(resumeAgain), time.Time{}
	if s.Why != nil {
		s.full = s.Why()
	}
	s.tell()
}

// Look does what is due at that time.
func (s *Stalls) Look(now time.Time) {
	switch {
	case s.paused.IsZero():
	case !s.going.IsZero() && now.Sub(s.going) >= wellAfter && len(s.cutOff()) == 0: // a read that needs the source fails only after a while
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

// servers starts to ask the servers in the background, and records what was found.
func (s *Stalls) servers(now time.Time) {
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

// tell reports what the guest waits for, if that has changed.
func (s *Stalls) tell() {
	var parts []string
	var cause launcherapi.Fault
	master := func(text string) bool { return strings.HasPrefix(text, fullMaster) } // a copy has a text of its own, which is enough
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
		s.Say(text, cause)
	}
}

// cutOff describes the disks whose source does not answer.
func (s *Stalls) cutOff() []string {
	if s.Cut == nil {
		return nil
	}
	return s.Cut()
}
