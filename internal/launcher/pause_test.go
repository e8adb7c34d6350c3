package launcher

import (
	"errors"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestPause: a guest that a person has paused is let go on by a person alone, whatever its disks do.
func TestPause(t *testing.T) {
	stopped := false
	p := &pauser{suspend: func() error { stopped = true; return nil }, resume: func() error { stopped = false; return nil }}
	if err := p.unpause(); !errors.Is(err, errNotPaused) {
		t.Errorf("unpause one that runs: %v", err)
	}
	stopped = true // a failed write does that
	if err := p.goOn(); err != nil || stopped {
		t.Errorf("one that nobody paused goes on: %v", err)
	}
	if err := p.pause(); err != nil || !stopped || !p.is() {
		t.Errorf("pause: %v", err)
	}
	if err := p.pause(); !errors.Is(err, errAlreadyPaused) {
		t.Errorf("pause twice: %v", err)
	}
	s := &stalls{resume: p.goOn, ask: func() map[string]string { return nil }, away: make(chan map[string]string, 1), waiting: map[string]waits{}}
	s.say = func(string, launcherapi.Fault) {}
	now := time.Now()
	s.failed(now)
	s.look(now.Add(resumeAgain))
	if !stopped || !s.going.IsZero() {
		t.Error("a disk that answers again has let a paused guest go on")
	}
	if err := p.unpause(); err != nil || stopped || p.is() {
		t.Errorf("unpause: %v", err)
	}
	s.look(now.Add(2 * resumeAgain))
	if s.going.IsZero() {
		t.Error("after that the disk does not let it go on")
	}
	p.suspend = func() error { return errors.New("libvirt is busy") }
	if err := p.pause(); err == nil || p.is() {
		t.Errorf("a pause that failed counts: %v", err)
	}
}

// TestPauseIsFixed: while a guest is sent it stays paused, or not; one that is told to stop meanwhile goes on when it stays.
func TestPauseIsFixed(t *testing.T) {
	stopped := false
	p := &pauser{suspend: func() error { stopped = true; return nil }, resume: func() error { stopped = false; return nil }}
	if p.fix() {
		t.Error("a guest that runs is said to be paused")
	}
	if err := p.pause(); !errors.Is(err, errMoving) || stopped {
		t.Errorf("it is paused on the way: %v", err)
	}
	p.release()
	if err := p.pause(); err != nil || !p.fix() {
		t.Fatalf("it is not paused: %v", err)
	}
	if err := p.unpause(); !errors.Is(err, errMoving) || !stopped {
		t.Errorf("it goes on on the way: %v", err)
	}
	if p.end(); !stopped {
		t.Error("one that is told to stop goes on on the way")
	}
	if p.release(); stopped || p.is() {
		t.Error("one that is told to stop stays paused")
	}
}
