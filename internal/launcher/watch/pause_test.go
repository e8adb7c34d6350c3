package watch

import (
	"errors"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestPause: a guest that a user has paused is resumed only by a user, whatever its disks do.
func TestPause(t *testing.T) {
	stopped := false
	var busy error
	p := guest.PauserOf(func() error { stopped = busy == nil; return busy }, func() error { stopped = false; return nil })
	if err := p.Unpause(); !errors.Is(err, guest.ErrNotPaused) {
		t.Errorf("unpause one that runs: %v", err)
	}
	stopped = true // a failed write does that
	if err := p.ResumeStopped(); err != nil || stopped {
		t.Errorf("one that nobody paused goes on: %v", err)
	}
	if err := p.Pause(); err != nil || !stopped || !p.Paused() {
		t.Errorf("pause: %v", err)
	}
	if err := p.Pause(); !errors.Is(err, guest.ErrAlreadyPaused) {
		t.Errorf("pause twice: %v", err)
	}
	s := &Stalls{resume: p.ResumeStopped, ask: func() map[string]string { return nil }, away: make(chan map[string]string, 1), waiting: map[string]waits{}}
	s.Say = func(string, launcherapi.Fault) {}
	now := time.Now()
	s.failed(now)
	s.Look(now.Add(resumeAgain))
	if !stopped || !s.going.IsZero() {
		t.Error("a disk that answers again has let a paused guest go on")
	}
	if err := p.Unpause(); err != nil || stopped || p.Paused() {
		t.Errorf("unpause: %v", err)
	}
	s.Look(now.Add(2 * resumeAgain))
	if s.going.IsZero() {
		t.Error("after that the disk does not let it go on")
	}
	busy = errors.New("libvirt is busy")
	if err := p.Pause(); err == nil || p.Paused() {
		t.Errorf("a pause that failed counts: %v", err)
	}
}
